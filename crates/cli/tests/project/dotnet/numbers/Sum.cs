namespace Numbers
{
    public static class Sum
    {
        public static int Of(int left, int right)
        {
            return left + right;
        }
    }
}

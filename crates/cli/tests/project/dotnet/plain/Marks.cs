using System;

namespace Plain
{
    /// <summary>Marks a method as a test.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    public sealed class CheckAttribute : Attribute
    {
        /// <summary>Why it is not run, if it is not.</summary>
        public string NotNow { get; set; }
    }

    public sealed class Unmet : Exception
    {
        public Unmet(string message) : base(message) { }
    }

    public static class Expect
    {
        public static void Same(object wanted, object found)
        {
            if (!Equals(wanted, found))
            {
                throw new Unmet($"wanted {wanted}, found {found}");
            }
        }
    }
}

using Plain;

public class Sums
{
    [Check]
    public void Holds()
    {
        Expect.Same(3, Numbers.Sum.Of(1, 2));
    }

    [Check]
    public void Breaks()
    {
        Expect.Same(4, Numbers.Sum.Of(1, 2));
    }

    [Check(NotNow = "not written yet")]
    public void Waits()
    {
    }
}

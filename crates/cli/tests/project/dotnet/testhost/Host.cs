using System;
using Microsoft.VisualStudio.TestPlatform.Common;
using Microsoft.VisualStudio.TestPlatform.Common.Telemetry;
using Microsoft.VisualStudio.TestPlatform.CommunicationUtilities;
using Microsoft.VisualStudio.TestPlatform.CrossPlatEngine;
using Microsoft.VisualStudio.TestPlatform.ObjectModel;
using Microsoft.VisualStudio.TestPlatform.ObjectModel.Client;
using Microsoft.VisualStudio.TestPlatform.ObjectModel.Host;

/// <summary>The process in which the test platform runs tests: what a package brings where packages can be had.</summary>
internal static class Host
{
    private static readonly TimeSpan Patience = TimeSpan.FromMinutes(1);

    private static int Main(string[] arguments)
    {
        string endpoint = After(arguments, "--endpoint") ?? $"127.0.0.1:{After(arguments, "--port")}";
        using var handler = new TestRequestHandler
        {
            ConnectionInfo = new TestHostConnectionInfo
            {
                Endpoint = endpoint,
                Role = ConnectionRole.Client,
                Transport = Transport.Sockets,
            },
        };
        handler.InitializeCommunication();
        if (!handler.WaitForRequestSenderConnection((int)Patience.TotalMilliseconds))
        {
            return 1;
        }
        var data = new RequestData { MetricsCollection = new NoOpMetricsCollection() };
        handler.ProcessRequests(new TestHostManagerFactory(data));
        return 0;
    }

    private static string After(string[] arguments, string flag)
    {
        int at = Array.IndexOf(arguments, flag);
        return at >= 0 && at + 1 < arguments.Length ? arguments[at + 1] : null;
    }
}

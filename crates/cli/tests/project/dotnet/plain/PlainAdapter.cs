using System;
using System.Collections.Generic;
using System.Reflection;
using System.Runtime.Loader;
using Microsoft.VisualStudio.TestPlatform.ObjectModel;
using Microsoft.VisualStudio.TestPlatform.ObjectModel.Adapter;
using Microsoft.VisualStudio.TestPlatform.ObjectModel.Logging;

namespace Plain
{
    /// <summary>Tells the test platform which methods are tests, and runs them.</summary>
    [FileExtension(".dll")]
    [DefaultExecutorUri(Name)]
    [ExtensionUri(Name)]
    public sealed class PlainAdapter : ITestDiscoverer, ITestExecutor
    {
        private const string Name = "executor://plain/1";
        private volatile bool _stopped;

        public void DiscoverTests(
            IEnumerable<string> sources, IDiscoveryContext context, IMessageLogger logger, ITestCaseDiscoverySink sink)
        {
            foreach (string source in sources)
            {
                foreach (TestCase test in Tests(source).Keys)
                {
                    sink.SendTestCase(test);
                }
            }
        }

        public void RunTests(IEnumerable<string> sources, IRunContext context, IFrameworkHandle handle)
        {
            var known = new Dictionary<string, TestProperty>
            {
                [nameof(TestCase.FullyQualifiedName)] = TestCaseProperties.FullyQualifiedName,
                [nameof(TestCase.DisplayName)] = TestCaseProperties.DisplayName,
            };
            ITestCaseFilterExpression filter = context.GetTestCaseFilter(
                known.Keys, name => known.TryGetValue(name, out TestProperty property) ? property : null);
            foreach (string source in sources)
            {
                foreach (KeyValuePair<TestCase, MethodInfo> test in Tests(source))
                {
                    TestCase it = test.Key;
                    object Value(string name) => known.ContainsKey(name) ? it.GetPropertyValue(known[name]) : null;
                    if (filter == null || filter.MatchTestCase(it, Value))
                    {
                        RunOne(it, test.Value, handle);
                    }
                }
            }
        }

        public void RunTests(IEnumerable<TestCase> tests, IRunContext context, IFrameworkHandle handle)
        {
            foreach (TestCase wanted in tests)
            {
                foreach (KeyValuePair<TestCase, MethodInfo> test in Tests(wanted.Source))
                {
                    if (test.Key.FullyQualifiedName == wanted.FullyQualifiedName)
                    {
                        RunOne(wanted, test.Value, handle);
                    }
                }
            }
        }

        public void Cancel()
        {
            _stopped = true;
        }

        private static Dictionary<TestCase, MethodInfo> Tests(string source)
        {
            var found = new Dictionary<TestCase, MethodInfo>();
            Assembly assembly = AssemblyLoadContext.Default.LoadFromAssemblyPath(source);
            foreach (Type type in assembly.GetTypes())
            {
                foreach (MethodInfo method in type.GetMethods())
                {
                    if (method.IsDefined(typeof(CheckAttribute)))
                    {
                        string name = $"{type.FullName}.{method.Name}";
                        found.Add(new TestCase(name, new Uri(Name), source) { DisplayName = name }, method);
                    }
                }
            }
            return found;
        }

        private void RunOne(TestCase test, MethodInfo method, IFrameworkHandle handle)
        {
            if (_stopped)
            {
                return;
            }
            var result = new TestResult(test) { DisplayName = test.DisplayName, StartTime = DateTimeOffset.Now };
            handle.RecordStart(test);
            string reason = method.GetCustomAttribute<CheckAttribute>().NotNow;
            if (reason == null)
            {
                Attempt(method, result);
            }
            else
            {
                result.Outcome = TestOutcome.Skipped;
                result.ErrorMessage = reason;
            }
            result.EndTime = DateTimeOffset.Now;
            result.Duration = result.EndTime - result.StartTime;
            handle.RecordEnd(test, result.Outcome);
            handle.RecordResult(result);
        }

        private static void Attempt(MethodInfo method, TestResult result)
        {
            try
            {
                object instance = method.IsStatic ? null : Activator.CreateInstance(method.DeclaringType);
                method.Invoke(instance, Array.Empty<object>());
                result.Outcome = TestOutcome.Passed;
            }
            catch (TargetInvocationException wrapped)
            {
                Exception cause = wrapped.InnerException ?? wrapped;
                result.Outcome = TestOutcome.Failed;
                result.ErrorMessage = cause.Message;
                result.ErrorStackTrace = cause.StackTrace;
            }
        }
    }
}

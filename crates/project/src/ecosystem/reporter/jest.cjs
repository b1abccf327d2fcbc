// A reporter for Jest that writes one line for each test as soon as it has ended, so that a run that is stopped has told what passed before.
'use strict';
const fs = require('fs');

class Reporter {
  constructor() {
    this.out = fs.openSync(process.env.COFFERDAM_EVENTS, 'w');
    this.told = new Map();
  }

  write(event) {
    fs.writeSync(this.out, JSON.stringify(event) + '\n');
  }

  tell(path, result) {
    const messages = result.failureMessages || [];
    const status = { passed: 'passed', failed: 'failed' }[result.status] || 'skipped';
    const event = { name: result.title, suite: result.ancestorTitles, status, file: path };
    if (typeof result.duration === 'number') event.duration_ms = result.duration;
    if (messages.length > 0) {
      event.message = String(messages[0]).split('\n')[0];
      event.stack = messages.join('\n');
    }
    this.write(event);
  }

  // Since Jest 26; what it does not tell of is told when its file has ended.
  onTestCaseResult(test, result) {
    const told = this.told.get(test.path) || [];
    told.push(result.fullName);
    this.told.set(test.path, told);
    this.tell(test.path, result);
  }

  onTestResult(test, file) {
    const told = this.told.get(test.path) || [];
    this.told.delete(test.path);
    if (file.testExecError || (file.testResults.length === 0 && file.failureMessage)) {
      this.write({ problem: `${test.path}: ${file.failureMessage || file.testExecError.message}` });
    }
    for (const result of file.testResults) {
      const at = told.indexOf(result.fullName);
      if (at < 0) this.tell(test.path, result);
      else told.splice(at, 1);
    }
  }

  onRunComplete() {
    this.write({ end: true });
  }
}

module.exports = Reporter;

// A reporter for Vitest that writes one line for each test as soon as it has ended, so that a run that is stopped has told what passed before.
'use strict';
const fs = require('fs');

class Reporter {
  constructor() {
    this.out = fs.openSync(process.env.COFFERDAM_EVENTS, 'w');
    this.told = new Set();
  }

  write(event) {
    fs.writeSync(this.out, JSON.stringify(event) + '\n');
  }

  tell(id, test) {
    if (this.told.has(id)) return;
    this.told.add(id);
    const error = (test.errors || [])[0];
    const status = { passed: 'passed', pass: 'passed', failed: 'failed', fail: 'failed' }[test.state] || 'skipped';
    const event = { name: test.name, suite: test.suite, status, file: test.file };
    if (typeof test.duration === 'number') event.duration_ms = test.duration;
    if (error) {
      event.message = String(error.message || error);
      event.stack = `${event.message}\n${error.stack || ''}`;
      event.expected = error.expected;
      event.actual = error.actual;
    }
    this.write(event);
  }

  // Vitest 3 and later.
  onTestCaseResult(test) {
    const result = test.result();
    const suite = [];
    for (let at = test.parent; at && at.type === 'suite'; at = at.parent) suite.unshift(at.name);
    this.tell(test.id, {
      name: test.name,
      suite,
      state: result.state,
      errors: result.errors,
      duration: (test.diagnostic() || {}).duration,
      file: test.module.moduleId,
    });
  }

  // Before that: what has changed, by id.
  onInit(vitest) {
    this.vitest = vitest;
  }

  onTaskUpdate(packs) {
    for (const [id, result] of packs || []) {
      const task = this.vitest && this.vitest.state && this.vitest.state.idMap.get(id);
      if (!task || !['test', 'custom'].includes(task.type)) continue;
      if (!result || !['pass', 'fail', 'skip'].includes(result.state)) continue;
      const suite = [];
      for (let at = task.suite; at && at.name && at !== task.file; at = at.suite) suite.unshift(at.name);
      this.tell(id, {
        name: task.name,
        suite,
        state: result.state,
        errors: result.errors,
        duration: result.duration,
        file: task.file && task.file.filepath,
      });
    }
  }

  onTestRunEnd() {
    this.end();
  }

  onFinished() {
    this.end();
  }

  end() {
    if (!this.ended) this.write({ end: true });
    this.ended = true;
  }
}

module.exports = Reporter;
module.exports.default = Reporter;

// A reporter for Mocha that writes one line for each test as soon as it has ended, so that a run that is stopped has told what passed before. People see what Mocha's own shows.
'use strict';
const fs = require('fs');
const { createRequire } = require('module');

// Text of anything; what compares may hold itself.
function text(value) {
  if (value === undefined) return undefined;
  if (typeof value === 'string') return value;
  try {
    return JSON.stringify(value);
  } catch {
    return String(value);
  }
}

function shown(runner, options) {
  try {
    const Mocha = createRequire(fs.realpathSync(process.argv[1]))('mocha');
    return new Mocha.reporters.Spec(runner, options);
  } catch {
    return undefined;
  }
}

module.exports = class Reporter {
  constructor(runner, options) {
    const out = fs.openSync(process.env.COFFERDAM_EVENTS, 'w');
    const write = (event) => fs.writeSync(out, JSON.stringify(event) + '\n');
    this.shown = shown(runner, options);
    const tell = (test, status, error) => {
      const suite = test.parent && test.parent.titlePath ? test.parent.titlePath() : [];
      const event = { name: test.title, suite, status, file: test.file || (test.parent || {}).file };
      if (typeof test.duration === 'number') event.duration_ms = test.duration;
      if (error) {
        event.message = String(error.message || error);
        event.stack = String(error.stack || error);
        event.expected = text(error.expected);
        event.actual = text(error.actual);
      }
      write(event);
    };
    runner.on('pass', (test) => tell(test, 'passed'));
    runner.on('fail', (test, error) => tell(test, 'failed', error));
    runner.on('pending', (test) => tell(test, 'skipped'));
    runner.once('end', () => write({ end: true }));
  }

  done(failures, end) {
    if (this.shown && typeof this.shown.done === 'function') return this.shown.done(failures, end);
    return end && end(failures);
  }
};

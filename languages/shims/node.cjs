// Loads a JavaScript or TypeScript file, calls its `handler` and writes one JSON document to the result descriptor.
//
//     node .cofferdam/shim.cjs MODE MAIN [ARGUMENT...]      MODE is `handler` (there must be one) or `auto` (there may be one)
//     node .cofferdam/shim.cjs wait                         says `.` and waits on standard input for all of that; see `awaitWord`
//
// The variable that names the descriptor is removed before user code runs. Node itself closes inherited descriptors on exec. It has no
// way to move one, so whether it is still the same pipe is looked at before anything is written to it.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");
const Module = require("module");
const { pathToFileURL } = require("url");
const { parse, stringify } = JSON;
const { writeSync, fstatSync, closeSync } = fs;
const exit = process.exit.bind(process);

const MAX_BYTES = 8388608;
const MAX_TEXT = 65536;
const [major, minor] = process.versions.node.split(".").map(Number);
const DETECTS_MODULES = major > 20 || (major === 20 && minor >= 10);

const complain = (text) => {
  try {
    writeSync(2, `cofferdam: ${text}\n`);
  } catch {}
};

const identity = (fd) => {
  const { dev, ino } = fstatSync(fd, { bigint: true });
  return `${dev}:${ino}`;
};

const cut = (text) => (text.length <= MAX_TEXT ? text : text.slice(0, MAX_TEXT) + "… (cut)");
// Half of a surrogate pair is not text that every reader of JSON accepts.
const clean = (text) => Buffer.from(cut(String(text))).toString();

const failure = (type, message, traceback) =>
  Buffer.from(stringify({ ok: false, error: { type: clean(type), message: clean(message), traceback: clean(traceback) } }));

const unserializable = (message) => failure("UnserializableResult", message, "");

function onlyJson(key, value) {
  const where = key === "" ? "" : ` at \`${key}\``;
  const refuse = (what) => {
    throw new TypeError(`${what}${where}`);
  };
  if (!wellFormed(key)) refuse("half of a surrogate pair in a key");
  switch (typeof value) {
    case "number":
      return Number.isFinite(value) ? value : refuse(String(value));
    case "bigint":
      return refuse("a BigInt; return it as a string");
    case "function":
    case "symbol":
      return refuse(`a ${typeof value}`);
    case "string":
      return wellFormed(value) ? value : refuse("half of a surrogate pair in a string");
    case "object":
      if (value instanceof Map || value instanceof Set) refuse("a Map or Set; make an object or an array of it");
      return value;
    default:
      return value;
  }
}

const wellFormed = (text) => !/[\ud800-\udfff]/.test(text) || Buffer.from(text).toString() === text;

// The document of a value, or of the reason why there is none.
function success(value) {
  let text;
  try {
    text = value === undefined ? "null" : stringify(value, onlyJson);
  } catch (error) {
    if (error instanceof RangeError) return unserializable("the value is too deep or too large for JSON; flatten it");
    return unserializable(`the value is not JSON: ${error && error.message}`);
  }
  if (text === undefined) return unserializable("the value is not JSON");
  const document = Buffer.from(`{"ok":true,"value":${text}}`);
  if (document.length <= MAX_BYTES) return document;
  return unserializable(`the value is ${document.length} bytes of JSON, at most ${MAX_BYTES}; write it to a file`);
}

function send(document) {
  try {
    if (identity(fd) !== pipe) throw new Error("the descriptor is another file now");
    for (let at = 0; at < document.length; ) at += writeSome(document, at);
    closeSync(fd);
  } catch (error) {
    complain(`the result could not be sent: ${error.message}`);
    exit(1);
  }
}

function writeSome(document, at) {
  try {
    return writeSync(fd, document, at);
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    return 0;
  }
}

// What was thrown may be anything, and its properties may throw as well.
function describe(error) {
  try {
    if (!(error instanceof Error)) return failure("Error", `${typeof error === "string" ? error : stringify(error)}`, "");
    const lines = String(error.stack || "").split("\n");
    const end = lines.findIndex((line) => line.includes(__filename));
    const stack = (end < 0 ? lines : lines.slice(0, end)).filter((line) => !/\(?node:internal\//.test(line));
    return failure(error.name || "Error", error.message, stack.join("\n"));
  } catch {
    return failure("Error", "(what was thrown could not be described)", "");
  }
}

let answered = false;
let called = false;
// Exactly once, whatever fails afterwards.
function answer(document) {
  if (answered) return;
  answered = true;
  send(document);
}

function fail(error) {
  const document = describe(error);
  const { type, message, traceback } = parse(document.toString()).error;
  complain(traceback || `${type}: ${message}`);
  answer(document);
  exit(1);
}

function isCommonJs(file) {
  if (file.endsWith(".cjs")) return true;
  if (!file.endsWith(".js")) return false;
  try {
    new vm.Script(Module.wrap(fs.readFileSync(file, "utf8").replace(/^#!.*/, "")), { filename: file });
    return true;
  } catch {
    return false; // an ES module, or wrong in either: the import says which
  }
}

async function load(file) {
  if (isCommonJs(file)) {
    try {
      return Module._load(file, null, true);
    } catch (error) {
      if (!error || error.code !== "ERR_REQUIRE_ESM") throw error;
    }
  }
  const asModule = file.replace(/\.js$/, ".mjs");
  if (DETECTS_MODULES || asModule === file || fs.existsSync(asModule)) return import(pathToFileURL(file).href);
  return loadCopy(file, asModule);
}

// An older node believes the name of a file, not its syntax.
async function loadCopy(file, asModule) {
  fs.copyFileSync(file, asModule);
  try {
    return await import(pathToFileURL(asModule).href);
  } finally {
    fs.unlinkSync(asModule);
  }
}

function find(loaded) {
  const declared = globalThis.__cofferdam_handler;
  delete globalThis.__cofferdam_handler;
  const exported = loaded && (loaded.handler || (loaded.default && loaded.default.handler));
  return [exported, declared, globalThis.handler].find((found) => typeof found === "function");
}

async function run(mode, file, event) {
  const handler = find(await load(file));
  if (handler === undefined) {
    if (mode === "auto") return;
    const told = `${path.basename(file)} has no function \`handler\`; define or export one`;
    complain(told);
    answer(failure("MissingHandler", told, ""));
    exit(1);
  }
  // A handler that waits for what never comes leaves nothing to do, and node ends.
  process.once("beforeExit", () => fail(new Error("the handler's promise was never settled")));
  called = true;
  const document = success(await handler(event, {}));
  answer(document);
  const isValue = document.subarray(0, 10).equals(Buffer.from('{"ok":true'));
  if (!isValue) complain(parse(document.toString()).error.message);
  // A timer or a connection that the handler left open would keep node alive for ever.
  exit(isValue ? process.exitCode : 1);
}

// Started ahead of its run, before anything of that is known. The word is its length and then, with a NUL between each two: resource limits, which are set
// already, the directory, how many arguments, the arguments, the environment. After a second `.` one byte says: go. What follows is the program's own input.
function awaitWord() {
  const read = (length) => {
    const bytes = Buffer.alloc(length);
    for (let got = 0; got < length; ) {
      const more = fs.readSync(0, bytes, got, length - got, null);
      if (more === 0) exit(1); // nothing to do will come
      got += more;
    }
    return bytes;
  };
  warmUp();
  writeSync(1, ".");
  const [, directory, count, ...texts] = read(read(4).readUInt32LE()).toString().split("\0");
  const words = texts.slice(0, Number(count));
  process.argv.splice(2, Infinity, ...words.slice(words.indexOf(process.argv[1]) + 1));
  const wanted = new Map(texts.slice(Number(count)).map((text) => text.split(/=([^]*)/, 2)));
  for (const name of Object.keys(process.env)) if (!wanted.has(name)) delete process.env[name];
  for (const [name, value] of wanted) if (process.env[name] !== value) process.env[name] = value;
  process.chdir(directory);
  writeSync(1, ".");
  read(1);
}

// What the first line that a program prints would load and compile. Standard output itself is left alone: once it is a stream, it is another for children too.
function warmUp() {
  const { Writable } = require("stream");
  require("net");
  require("tty");
  const nowhere = new Writable({ write: (chunk, encoding, done) => done() });
  new console.Console(nowhere).log(1, "a", { a: [1] });
}

if (process.argv.length === 3 && process.argv[2] === "wait") awaitWord();
let fd, pipe, event;
try {
  fd = Number(process.env.COFFERDAM_RESULT_FD);
  delete process.env.COFFERDAM_RESULT_FD;
  pipe = identity(fd);
  const file = path.join(__dirname, "event.json");
  // No file is the event without anything in it.
  event = fs.existsSync(file) ? parse(fs.readFileSync(file, "utf8")) : {};
  try {
    fs.unlinkSync(file);
  } catch {} // a read-only workspace; the event is no secret to the handler
} catch (error) {
  complain(`the handler cannot be called: ${error.message}`);
  exit(1);
}
const [mode, main] = process.argv.splice(1, 3, path.resolve(process.argv[3])).slice(1);
process.on("exit", (code) => {
  // A script that ends itself has no handler that could have answered.
  if (called || mode !== "auto") answer(failure("ProcessExit", `the program ended itself with status ${code}`, ""));
});
process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
run(mode, process.argv[1], event).catch(fail);

// BullMQ as an entrant of bench/peers: the same arguments as driver.py, the same record files as record.py, and
//
//     node bullmq.js worker
//
// which runs one worker in this process.
'use strict';
const fs = require('fs');
const path = require('path');
const { Queue, Worker } = require('bullmq');

const CONCURRENCY = 100;
const FIRST = 100_000;
const TEXT = 'abcdefghij'.repeat(14).slice(0, 131);
const KINDS = ['noop', 'burn', 'nap', 'stamp', 'load', 'once'];
const LATENCIES = 4096;
const IDS = 524_288;
const STAMPS_AT = 4096;
const LOADS_AT = STAMPS_AT + 8 * LATENCIES;
const ENDED_AT = LOADS_AT + 8 * LATENCIES;
const STARTED_AT = ENDED_AT + IDS;
const FLUSH_MS = 20;

const connection = { host: '127.0.0.1', port: Number(process.env.BENCH_PORT), maxRetriesPerRequest: null };
const jobOptions = process.env.BENCH_RESULTS === '1' ? {} : { removeOnComplete: true };
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const argument = (name, fallback) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? fallback : process.argv[at + 1];
};

function describe() {
  const version = (name) => require(path.join(__dirname, 'node_modules', name, 'package.json')).version;
  const processes = Number(argument('--processes', 2));
  console.log(JSON.stringify({
    workers: Array.from({ length: processes }, () => [process.execPath, __filename, 'worker']),
    handlers: `${processes} processes x ${CONCURRENCY}`,
    bulk: true,
    versions: { node: process.versions.node, bullmq: version('bullmq'), ioredis: version('ioredis') },
  }));
}

async function produce() {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  const kind = argument('--kind', 'noop');
  const tasks = Number(argument('--tasks', 1));
  const first = Number(argument('--first', 0));
  const bulk = Number(argument('--bulk', 0));
  const rate = Number(argument('--rate', 0));
  const warmUp = Number(argument('--warm-up', 0));
  const timed = kind === 'stamp' || kind === 'load';
  const payload = (number) => ({ i: FIRST + first + number, s: TEXT });
  let begun = monotonic();
  const cpu = process.cpuUsage();
  if (bulk) {
    for (let start = 0; start < tasks; start += bulk) {
      const chunk = [];
      for (let number = start; number < Math.min(start + bulk, tasks); number++) {
        chunk.push({ name: kind, data: payload(number), opts: jobOptions });
      }
      await queue.addBulk(chunk);
    }
  } else {
    let due = begun + 0.1;
    for (let number = 0; number < tasks; number++) {
      if (number && number === warmUp) begun = monotonic();
      if (rate) {
        due += (kind === 'load' ? -Math.log(1 - Math.random()) : 0.5 + Math.random()) / rate;
        const wait = due - monotonic();
        if (wait > 0) await sleep(wait * 1000);
      }
      const data = payload(number);
      if (timed) data.t = monotonic();
      await queue.add(kind, data, jobOptions);
    }
  }
  const used = process.cpuUsage(cpu);
  console.log(JSON.stringify({ seconds: monotonic() - begun, cpu_s: (used.user + used.system) / 1e6 }));
  process.exit(0);
}

// Node cannot map files into memory: what a `once` notes is written at once, the rest every FLUSH_MS.
function work() {
  const file = fs.openSync(path.join(process.env.BENCH_RECORD, `${process.pid}.record`), 'w+');
  const head = new Float64Array(3 * KINDS.length);
  const stamps = new Float64Array(LATENCIES);
  const loads = new Float64Array(LATENCIES);
  const ended = new Uint8Array(IDS);
  const started = new Uint8Array(IDS);
  let lowest = IDS;
  let highest = -1;
  const flush = () => {
    if (highest < 0) return;
    fs.writeSync(file, ended, lowest, highest - lowest + 1, ENDED_AT + lowest);
    lowest = IDS;
    highest = -1;
    fs.writeSync(file, stamps, 0, stamps.byteLength, STAMPS_AT);
    fs.writeSync(file, loads, 0, loads.byteLength, LOADS_AT);
    fs.writeSync(file, head, 0, head.byteLength, 0); // last: its counts say that the rest is there
  };
  setInterval(flush, FLUSH_MS);
  const note = (kind, number, begun, sent) => {
    const place = 3 * kind;
    if (sent) (KINDS[kind] === 'stamp' ? stamps : loads)[head[place] % LATENCIES] = begun - sent;
    if (!head[place]) head[place + 1] = begun;
    head[place]++;
    head[place + 2] = monotonic();
    ended[number] = Math.min(255, ended[number] + 1);
    lowest = Math.min(lowest, number);
    highest = Math.max(highest, number);
  };
  new Worker('bench', async (job) => {
    const begun = monotonic();
    const number = job.data.i - FIRST;
    if (job.name === 'nap') await sleep(10);
    else if (job.name === 'once') {
      started[number]++;
      fs.writeSync(file, started, number, 1, STARTED_AT + number);
      burn();
    } else if (job.name === 'burn' || job.name === 'load') burn();
    note(KINDS.indexOf(job.name), number, begun, job.data.t);
    if (job.name === 'once') flush();
    return job.data.i;
  }, { connection, concurrency: CONCURRENCY });
}

// 5 ms of this thread's CPU time; Node before 23.9 only tells that of the process, whose other threads sleep then.
function burn() {
  const usage = process.threadCpuUsage ? (since) => process.threadCpuUsage(since) : (since) => process.cpuUsage(since);
  const begun = usage();
  for (;;) {
    let total = 0;
    for (let number = 0; number < 4000; number++) total += (number * number) % 7;
    const used = usage(begun);
    if (used.user + used.system >= 5000) return total;
  }
}

const what = process.argv[2];
if (what === 'describe') describe();
else if (what === 'produce') produce();
else work();

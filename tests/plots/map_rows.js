// Reads [{x, setting}, ...] from standard input and writes the weights, computed by the file that the page inlines.
// JSON has no -Infinity: null marks a deleted score.
"use strict";
const fs = require("fs");
const vm = require("vm");
vm.runInThisContext(fs.readFileSync(process.argv[2], "utf8"));
const rows = JSON.parse(fs.readFileSync(0, "utf8"));
const scores = (x) => Float64Array.from(x, (score) => score ?? -Infinity);
process.stdout.write(JSON.stringify(rows.map(({ x, setting }) => [...mapRow(scores(x), setting)])));

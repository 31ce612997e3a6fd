// Reads [{x, setting}, ...] from standard input and writes the weights, computed by the file that the page inlines.
"use strict";
const fs = require("fs");
const vm = require("vm");
vm.runInThisContext(fs.readFileSync(process.argv[2], "utf8"));
const rows = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(rows.map(({ x, setting }) => mapRow(x, setting))));

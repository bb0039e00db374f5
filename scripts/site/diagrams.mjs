// Diagrams in the language of Mermaid as SVG, whose colours are variables of CSS. Reads an array of
// texts as JSON, and prints one of SVGs.
//   node diagrams.mjs FOLDER    where npm has installed the packages of package.json
import { readFileSync } from 'node:fs'

const { renderMermaidSVG } = await import(`${process.argv[2]}/beautiful-mermaid/dist/index.js`)
const texts = JSON.parse(readFileSync(0, 'utf8'))
console.log(JSON.stringify(texts.map((text) => renderMermaidSVG(text, { transparent: true }))))

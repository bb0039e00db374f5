/* The client goes to the folder CLIENT. Its imports have the extension that Node.js needs. */
export default { output: { path: process.env.CLIENT, importFileExtension: ".js" } };

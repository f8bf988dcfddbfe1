// A server of the Model Context Protocol with one tool, which reads a file, over stdin and stdout: one
// line of JSON for each message.
// usage: files_server.mjs FOLDER [NAME]      files of FOLDER alone; NAME: of the tool (read_file)
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';

const folder = path.resolve(process.argv[2] ?? '.');
const tool = {
  name: process.argv[3] ?? 'read_file',
  description: 'Read a file',
  inputSchema: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
};

function readFile(name) {
  const file = path.resolve(folder, name);
  if (!file.startsWith(folder + path.sep)) throw new Error(`${name} is outside of the folder`);
  return fs.readFileSync(file, 'utf8');
}

function answer({ method, params }) {
  switch (method) {
    case 'initialize':
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: 'files', version: '1' },
      };
    case 'tools/list':
      return { tools: [tool] };
    case 'tools/call':
      try {
        return { content: [{ type: 'text', text: readFile(params.arguments.path) }] };
      } catch (error) {
        return { content: [{ type: 'text', text: error.message }], isError: true };
      }
    case 'ping':
      return {};
    default:
      return null;
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.id === undefined) continue; // a notification
  const result = answer(message);
  const reply = result === null
    ? { error: { code: -32601, message: `${message.method} is not known` } } : { result };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id: message.id, ...reply })}\n`);
}

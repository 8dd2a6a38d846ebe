// Reads [{"secret": "whsec_...", "headers": {name: value}, "body": base64}, ...] and writes, for each request, why the
// library of Standard Webhooks refuses it, or an empty text.
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';

function refusal({ secret, headers, body }) {
  try {
    new Webhook(secret).verify(Buffer.from(body, 'base64'), headers, { jsonParse: false });
    return '';
  } catch (error) {
    return error.message;
  }
}

console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map(refusal)));

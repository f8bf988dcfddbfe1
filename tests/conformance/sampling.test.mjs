// Every field that shapes the answer, with the official openai client: what it does, and that the
// draft changes nothing. Two servers are asked the same: one without proposals for the whole answer,
// one with three a step for a stream. What they say has to be equal.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Server, speculative, user } from './server.mjs';

const story = user('Tell me a story.');
let servers;
before(async () => {
  servers = await Promise.all([0, 3].map((proposals) => (
    Server.start(['--speculative-config', speculative(proposals)]))));
});
after(() => Promise.all(servers.map((server) => server.stop())));

// The choices of a stream, put together to those of a whole answer.
function join(chunks) {
  const choices = [];
  for (const choice of chunks.flatMap((chunk) => chunk.choices)) {
    choices[choice.index] ??= {
      text: '', content: '', reasoning: '', finish: null, stop: null, logprobs: [],
    };
    const all = choices[choice.index];
    assert.equal(all.finish, null, 'nothing follows the end of a choice');
    all.text += choice.text ?? '';
    all.content += choice.delta?.content ?? '';
    all.reasoning += choice.delta?.reasoning ?? '';
    all.finish = choice.finish_reason;
    all.stop = choice.stop_reason ?? null;
    if (choice.logprobs) all.logprobs.push(choice.logprobs);
  }
  return choices.map((all) => ({ ...all, logprobs: joinLogprobs(all.logprobs) }));
}

// Lists of the same name, one after the other.
function joinLogprobs(parts) {
  if (parts.length === 0) return null;
  const joined = {};
  for (const [name, list] of parts.flatMap(Object.entries)) {
    joined[name] = list === null ? null : [...(joined[name] ?? []), ...list];
  }
  return joined;
}

function flatten(answer) {
  return answer.choices.map((choice) => ({
    text: choice.text ?? '',
    content: choice.message?.content ?? '',
    reasoning: choice.message?.reasoning ?? '',
    finish: choice.finish_reason,
    stop: choice.stop_reason,
    logprobs: choice.logprobs,
  }));
}

const counted = ({ prompt_tokens_details: cached, ...rest }) => (
  assert.equal(typeof cached.cached_tokens, 'number'), rest);

// Asks the server without proposals for the whole, the other for a stream; both are the same. Gives
// { choices, usage }.
async function ask(endpoint, request) {
  const [plain, drafting] = servers.map(({ client }) => endpoint(client));
  const collect = async () => {
    const chunks = [];
    for await (const chunk of await drafting.create({
      model: 'nano', ...request, stream: true, stream_options: { include_usage: true },
    })) chunks.push(chunk);
    return chunks;
  };
  const [answer, chunks] = await Promise.all(
    [plain.create({ model: 'nano', ...request }), collect()]);
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  const choices = flatten(answer);
  assert.deepEqual(join(chunks), choices, 'streamed with the draft is whole without');
  assert.deepEqual(counted(last.usage), counted(answer.usage));
  return { choices, usage: counted(answer.usage) };
}
const chat = (request) => ask((client) => client.chat.completions,
  { messages: story, temperature: 0, max_tokens: 10, ...request });
const complete = (request) => ask((client) => client.completions,
  { prompt: 'def parse_csv(path):', temperature: 0, max_tokens: 12, ...request });

const text = async (request) => (await chat(request)).choices[0].content;

describe('sampling', () => {
  const hot = { temperature: 1.5, top_p: 1, top_k: 0, seed: 5 };
  test('temperature and seed', async () => {
    const first = await text(hot);
    assert.equal(await text(hot), first);
    assert.notEqual(await text({ ...hot, seed: 6 }), first);
    assert.notEqual(await text({}), first);
  });

  for (const [name, fields] of Object.entries({
    top_k: { top_k: 1 }, top_p: { top_p: 0.0001 }, min_p: { min_p: 1 },
  })) {
    test(`${name} cuts down to the likeliest token`, async () => {
      const greedy = await text({});
      assert.equal(await text({ ...hot, ...fields }), greedy);
    });
  }

  test('part of the tokens', () => text({ ...hot, top_k: 50, top_p: 0.9, min_p: 0.02 }));

  test('penalties', async () => {
    const long = { ...hot, temperature: 1, max_tokens: 16, ignore_eos: true };
    const plain = await text(long);
    for (const fields of [{ presence_penalty: 2 }, { frequency_penalty: 2 },
      { repetition_penalty: 1.8 }]) {
      assert.notEqual(await text({ ...long, ...fields }), plain, JSON.stringify(fields));
    }
  });

  test('logit_bias', async () => {
    const token = 300;
    const forced = await complete({ logit_bias: { [token]: 100 }, max_tokens: 5, logprobs: 0 });
    const { tokens } = forced.choices[0].logprobs;
    assert.equal(new Set(tokens).size, 1);
    assert.equal(tokens.length, 5);
    const plain = await complete({ max_tokens: 1, logprobs: 0 });
    const ids = await (await servers[0].post('/tokenize',
      { prompt: plain.choices[0].text, add_special_tokens: false })).json();
    const banned = await complete({ max_tokens: 1, logit_bias: { [ids.tokens[0]]: -100 } });
    assert.notEqual(banned.choices[0].text, plain.choices[0].text);
  });
});

describe('where an answer ends', () => {
  const capital = { messages: user('capital of France? one word') };
  test('min_tokens and ignore_eos', async () => {
    assert.ok((await chat(capital)).usage.completion_tokens < 6);
    assert.ok((await chat({ ...capital, min_tokens: 12, max_tokens: 15 })).usage.completion_tokens >= 12);
    const ignored = await chat({ ...capital, ignore_eos: true, max_tokens: 15 });
    assert.equal(ignored.usage.completion_tokens, 15);
    assert.equal(ignored.choices[0].finish, 'length');
  });

  test('stop, stop_token_ids, include_stop_str_in_output', async () => {
    const full = (await complete({ max_tokens: 16 })).choices[0].text;
    const stop = full.slice(8, 11);
    const cut = (await complete({ stop })).choices[0];
    assert.equal(cut.text, full.slice(0, full.indexOf(stop)));
    assert.deepEqual([cut.finish, cut.stop], ['stop', stop]);
    const kept = (await complete({ stop, include_stop_str_in_output: true })).choices[0];
    assert.equal(kept.text, cut.text + stop);
    const ids = (await (await servers[0].post('/tokenize',
      { prompt: full, add_special_tokens: false })).json()).tokens;
    const token = ids[4];
    const byToken = (await complete({ stop_token_ids: [token] })).choices[0];
    assert.deepEqual([byToken.finish, byToken.stop], ['stop', token]);
    assert.ok(full.startsWith(byToken.text) && byToken.text.length < full.length);
    const withToken = (await complete({
      stop_token_ids: [token], include_stop_str_in_output: true,
    })).choices[0];
    assert.ok(full.startsWith(withToken.text) && withToken.text.length > byToken.text.length);
  });

  test('skip_special_tokens', async () => {
    const shown = await chat({ ...capital, skip_special_tokens: false, ignore_eos: true });
    const hidden = await chat({ ...capital, ignore_eos: true });
    assert.match(shown.choices[0].content, /<\/?assistant>|〈\|EOS\|〉/);
    assert.doesNotMatch(hidden.choices[0].content, /<\/?assistant>|〈\|EOS\|〉/);
  });
});

test('n choices have seeds of their own', async () => {
  const request = { temperature: 1.2, seed: 11, n: 2, best_of: 2 };
  const { choices, usage } = await chat(request);
  assert.equal(choices.length, 2);
  assert.ok(new Set(choices.map((choice) => choice.content)).size > 1);
  const alone = await chat({ ...request, n: 1, best_of: 1 });
  assert.deepEqual(alone.choices[0], choices[0]);
  assert.equal(alone.usage.prompt_tokens, usage.prompt_tokens);
  const several = await complete({ prompt: ['def f():', [5, 6, 7]], n: 2, temperature: 1, seed: 1, max_tokens: 6 });
  assert.equal(several.choices.length, 4);
  const second = await complete({ prompt: [5, 6, 7], temperature: 1, seed: 1, max_tokens: 6 });
  assert.deepEqual(several.choices[2], second.choices[0]);
});

describe('log probabilities', () => {
  test('of chat', async () => {
    const { choices: [choice], usage } = await chat({ logprobs: true, top_logprobs: 3 });
    const { content } = choice.logprobs;
    assert.equal(content.length, usage.completion_tokens);
    const bytes = content.flatMap((entry) => entry.bytes);
    assert.ok(Buffer.from(bytes).toString().startsWith(choice.content));
    for (const entry of content) {
      assert.equal(entry.top_logprobs.length, 3);
      assert.ok(entry.logprob <= 0);
      // Greedy: the token drawn is the best, and the list is sorted.
      assert.equal(entry.top_logprobs[0].logprob, entry.logprob);
      const values = entry.top_logprobs.map((top) => top.logprob);
      assert.deepEqual(values, [...values].sort((a, b) => b - a));
      assert.ok(values.reduce((sum, value) => sum + Math.exp(value), 0) < 1.001);
    }
    const bare = (await chat({ logprobs: true })).choices[0].logprobs.content;
    assert.deepEqual(bare.map((entry) => entry.token), content.map((entry) => entry.token));
    assert.deepEqual(bare[0].top_logprobs, []);
  });

  test('of completions, sampled', async () => {
    const { choices: [{ text: all, logprobs }] } = await complete(
      { logprobs: 2, temperature: 1, seed: 3 });
    logprobs.tokens.forEach((token, i) => {
      assert.equal(all.slice(logprobs.text_offset[i]).slice(0, token.length), token);
      assert.equal(logprobs.top_logprobs[i][token], logprobs.token_logprobs[i]);
      assert.ok([2, 3].includes(Object.keys(logprobs.top_logprobs[i]).length));
    });
  });

  test('of an echoed prompt', async () => {
    const prompt = 'import os\n';
    const generated = await complete({ prompt, logprobs: 1, max_tokens: 4, echo: true });
    const [{ text: all, logprobs }] = generated.choices;
    assert.ok(all.startsWith(prompt));
    assert.equal(logprobs.tokens.length, generated.usage.total_tokens);
    assert.equal(logprobs.token_logprobs[0], null);
    assert.equal(logprobs.tokens.join(''), all);
    const only = await complete({ prompt, logprobs: 1, max_tokens: 0, echo: true });
    assert.equal(only.choices[0].text, prompt);
    assert.equal(only.usage.completion_tokens, 0);
    const count = generated.usage.prompt_tokens;
    assert.deepEqual(only.choices[0].logprobs.token_logprobs,
      logprobs.token_logprobs.slice(0, count));
    // The text scored as a prompt has the probabilities it was generated with, up to rounding:
    // prompt rows and generated rows are computed in different orders.
    const scored = await complete({ prompt: all, logprobs: 1, max_tokens: 0, echo: true });
    scored.choices[0].logprobs.token_logprobs.slice(1).forEach((value, i) => {
      assert.ok(Math.abs(value - logprobs.token_logprobs[i + 1]) < 0.1);
    });
  });

  test('prompt_logprobs', async () => {
    for (const { client } of servers) {
      const answer = await client.completions.create(
        { model: 'nano', prompt: [7, 8, 9], prompt_logprobs: 2, max_tokens: 1 });
      const list = answer.choices[0].prompt_logprobs;
      assert.equal(list.length, 3);
      assert.equal(list[0], null);
      assert.ok(list[1]['8'].rank >= 1 && list[1]['8'].logprob <= 0);
      assert.ok([2, 3].includes(Object.keys(list[2]).length));
    }
  });
});

test('all at once, beside others', async () => {
  const request = {
    temperature: 1.1, top_p: 0.9, top_k: 40, min_p: 0.01, seed: 8, presence_penalty: 0.5,
    frequency_penalty: 0.3, repetition_penalty: 1.1, logit_bias: { 300: -5, 301: 2 },
    logprobs: true, top_logprobs: 2, min_tokens: 4, n: 2,
  };
  const alone = await chat(request);
  const together = await Promise.all(Array.from({ length: 2 }, () => chat(request)));
  for (const answer of together) assert.deepEqual(answer, alone);
});

// What the scripts of the clients share. The first argument is an object of JSON: the server with
// the embedded model and its key, and servers of models that say one text each: calls, a recipe.
export const given = JSON.parse(process.argv[2]);

const calls = [];
export const call = (name) => calls.push(name);

// done says what was called, and what else the test in Go looks at.
export const done = (more = {}) => console.log(JSON.stringify({ calls, ...more }));

export function same(name, got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`${name}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

// fails calls ask, which must fail with an error of which look returns what is wanted.
export async function fails(name, look, want, ask) {
  call(name);
  let result;
  try {
    result = await ask();
  } catch (e) {
    let seen;
    try {
      seen = look(e);
    } catch {
      throw e;
    }
    if (JSON.stringify(seen) !== JSON.stringify(want)) throw new Error(`${name}: ${JSON.stringify(seen)}, want ${JSON.stringify(want)}`, { cause: e });
    return;
  }
  throw new Error(`${name}: it was taken: ${JSON.stringify(result)}`);
}

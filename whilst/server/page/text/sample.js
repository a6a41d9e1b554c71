// A short talk to play, one sentence per line.

const ENGLISH = `
When I was a child, my grandmother lived on a small farm near the sea.
Every morning she walked to the beach and looked at the water for a few minutes.
One day I asked her what she was looking for.
She told me that the sea is never the same, and that you have to read it before you can trust it.
I did not understand what she meant until many years later.
Today I work with people who listen to one language and speak another at the same time.
They cannot wait for the end of the sentence, because the speaker does not wait for them.
If they begin too early, they have to guess, and if they begin too late, they forget.
So they do what my grandmother did: they watch, they wait a little, and then they go.
I believe that a machine can learn to do this too.
`;

// The toy corpus has a grammar but no meaning.
const TOY = `
ros honus monar mor nasari yokor muron ?
nayok ros tasosoki romur naros , ror manon hosus kan ratur ras tusak ?
tomon ror sotosun namar mun ros musak naros .
ros hokus morur kan turohori romuri muros nok , suyur ror tosani yokor ror sahar yun yotun ?
suyur kan yorani romur ros hukok yun ror yoran haran mun kan nasar hahun ?
mor tasosok mor rusaki suhan ronan kor ror hoson yun .
`;

const SAMPLES = { en: ENGLISH, src: TOY };

/** The sample in a language, or "". */
export const sampleIn = (language) => (SAMPLES[language.split(/[-_]/u)[0]] ?? "").trim();

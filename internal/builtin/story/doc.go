// Package story is the language of the built-in model: a grammar of little
// stories and of conversations about them. It draws texts to train on, and judges
// whether a text, such as a model's sample, belongs to the language: sentence by
// sentence, with names, pronouns, things and mood kept through the whole text.
//
// One grammar serves both ways. Drawing fills the slots at random; judging looks
// for a way to fill them that gives the text. So every drawn text is accepted, and
// so is any other telling that the patterns and words allow.
package story

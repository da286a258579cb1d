// Package data makes training examples of text: it reads documents and conversations, tokenizes
// them, masks what is not to be learned, and packs them into rows of equal length.
//
// [Load] goes from files to a training and a validation [Dataset]; [Windows] does what llama-finetune
// does with a text. What is the same on every run is decided by hashes of the documents (on which
// side of the split one stands) or by seed and epoch alone ([Order]), so that a resumed run needs no
// state of this package.
package data

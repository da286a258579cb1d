// Package data makes training examples of text: it reads documents and conversations, tokenizes
// them, masks what is not to be learned, and packs them into rows of equal length.
package data

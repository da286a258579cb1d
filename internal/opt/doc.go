// Package opt trains: it takes a model that can tell its loss and its gradients
// (package graph) and examples (package data), and does everything between a
// first step and a saved model.
//
//   - [OptimizerParams], [Schedule] and [Optimizer]: AdamW, SGD and Muon, with
//     constant parameters or parameters by step.
//   - [Fit]: epochs, batches, evaluation, early stop, and a guard that stops a
//     run whose loss explodes.
//   - [Run]: the run folder, with metrics, a loss curve and checkpoints. A run
//     that is killed at any moment and resumed ends with the same bits as one
//     that was not.
//   - [SaveModel]: the trained model as a GGUF file.
package opt

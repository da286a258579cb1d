// Package graph computes a model's loss and its gradients.
package graph

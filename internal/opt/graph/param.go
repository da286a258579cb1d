package graph

// Param is one trainable tensor. Data and Grad belong to the model; the optimizer changes Data and then
// calls Updated.
type Param struct {
	Name   string    // the tensor's name in a GGUF file, or NAME.lora_a and NAME.lora_b
	Shape  []int64   // sizes, ne[0] (contiguous in memory) first
	Data   []float32 // the values, as many as the product of Shape
	Grad   []float32 // the gradient, as long as Data; zeroed by ZeroGrad, added to by Backward
	Matrix bool      // a 2-D weight of the blocks, which Muon may orthogonalize; not embeddings, norms, biases
	Decay  bool      // weight decay applies: not for norms and biases
}

// Loss is what an example, or several, cost.
type Loss struct {
	Sum     float64 // sum of weight times negative log-likelihood, nats
	Weight  float64 // sum of the weights of the scored positions
	Scored  int64   // scored positions
	Correct int64   // of these, those whose label had the largest logit
}

// Add adds b to l.
func (l *Loss) Add(b Loss) {
	l.Sum += b.Sum
	l.Weight += b.Weight
	l.Scored += b.Scored
	l.Correct += b.Correct
}

package graph

// Add adds b to l.
func (l *Loss) Add(b Loss) {
	l.Sum += b.Sum
	l.Weight += b.Weight
	l.Scored += b.Scored
	l.Correct += b.Correct
}

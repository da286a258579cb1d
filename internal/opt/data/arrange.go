package data

import "math"

// arrange divides the documents between training and validation, repeats them by the weight of
// their source, and packs them.
func (o *Options) arrange(c *corpus) (train, val *Dataset) {
	var sides [2][]int32
	for i, d := range c.docs {
		if unit(d.hash) < o.ValShare {
			sides[1] = append(sides[1], int32(i))
			continue
		}
		for range repeats(o.Sources[d.source].Weight, d.hash) {
			sides[0] = append(sides[0], int32(i))
		}
	}
	var out [2]*Dataset
	for k, docs := range sides {
		d := &Dataset{src: c}
		rows := make([][]int32, 0, len(docs))
		if o.Pack {
			rows = firstFit(c, docs, o.MaxLen)
		} else {
			for i := range docs {
				rows = append(rows, docs[i:i+1])
			}
		}
		for _, row := range rows {
			spans := make([]span, len(row))
			for i, doc := range row {
				spans[i] = span{doc: doc, n: c.docs[doc].n}
				d.stats.Labels += c.labels(int(doc))
			}
			d.addRow(spans...)
		}
		d.stats.Documents = len(docs)
		out[k] = d
	}
	return out[0], out[1]
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// repeats returns how often a document of a source of weight w stands in an epoch: w times, where
// its hash decides about the fraction. It uses other bits than the split, which else would choose.
func repeats(w float64, hash uint64) int {
	if w == 0 {
		w = 1
	}
	n := math.Floor(w)
	if unit(mix(hash^0x9e3779b97f4a7c15)) < w-n {
		n++
	}
	return int(n)
}

// firstFit packs documents into rows of at most most positions: each goes into the first row
// that has room for it. A tree of the room left in each row finds that in logarithmic time.
func firstFit(c *corpus, docs []int32, most int) [][]int32 {
	size := 1
	for size < len(docs) {
		size *= 2
	}
	room := make([]int32, 2*size) // node k is over nodes 2k and 2k+1; row i is node size+i
	for i := range room {
		room[i] = int32(most)
	}
	var rows [][]int32
	for _, d := range docs {
		need := c.docs[d].n - 1
		k := 1
		for k < size {
			k *= 2
			if room[k] < need {
				k++
			}
		}
		if k-size == len(rows) {
			rows = append(rows, nil)
		}
		rows[k-size] = append(rows[k-size], d)
		room[k] -= need
		for k /= 2; k > 0; k /= 2 {
			room[k] = max(room[2*k], room[2*k+1])
		}
	}
	return rows
}

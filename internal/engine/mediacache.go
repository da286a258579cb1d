package engine

import "container/list"

// embdCache keeps the embeddings of the media used last, up to a number of bytes. It belongs to one Media: projector and
// limits are the same for all that it holds.
type embdCache struct {
	most, bytes int64
	order       list.List // the one used last in front
	byKey       map[string]*list.Element
}

type embdEntry struct {
	key   string
	embds [][]float32
	bytes int64
}

func newEmbdCache(most int64) *embdCache {
	return &embdCache{most: most, byKey: map[string]*list.Element{}}
}

// get returns what is kept under key, nil if nothing is. The caller must not write to it.
func (c *embdCache) get(key string) [][]float32 {
	e := c.byKey[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*embdEntry).embds
}

// put keeps embds under key if they are not too large, and drops what was not used for longest.
func (c *embdCache) put(key string, embds [][]float32) {
	e := &embdEntry{key: key, embds: embds}
	for _, x := range embds {
		e.bytes += 4 * int64(len(x))
	}
	if e.bytes > c.most || c.byKey[key] != nil {
		return
	}
	for c.bytes+e.bytes > c.most {
		last := c.order.Remove(c.order.Back()).(*embdEntry)
		c.bytes -= last.bytes
		delete(c.byKey, last.key)
	}
	c.byKey[key] = c.order.PushFront(e)
	c.bytes += e.bytes
}

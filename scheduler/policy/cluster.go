// SPDX-License-Identifier: Apache-2.0

package policy

import "math"

// blockRows is how many rows go through all layers of the encoder before the next ones do: few
// enough to stay in the first-level cache, and to be summed in single precision.
const blockRows = 64

// Cluster is the working memory of one network over the nodes of one cluster. It keeps what did
// not change between two pods; whoever owns it says which rows did. Not for concurrent use.
type Cluster struct {
	network  *Network
	rows     int
	features []float32 // (blockRows, Features)
	hidden   [2][]float32
	encoded  []float32 // (rows, width)
	own      []float32 // (rows, own.out): the head's first layer before the pool is added
	sums     []float32 // (blocks, width): of the encodings of each block of rows
	tops     []float32 // (blocks, width): their maxima
	changed  []bool    // (blocks): whether both have to be worked out again
	pooled   []float32 // (rowGroup, 2 width), of which one row is used
	shared   []float32 // (rowGroup, own.out)
	dirty    []int32
	q        []float32
}

// NewCluster gives a network its working memory.
func NewCluster(n *Network) *Cluster {
	c := &Cluster{network: n}
	c.features = make([]float32, blockRows*Features)
	for i := range c.hidden {
		c.hidden[i] = make([]float32, blockRows*n.scratch)
	}
	c.pooled = make([]float32, rowGroup*2*n.width)
	c.shared = make([]float32, rowGroup*n.own.out)
	return c
}

// Resize says how many nodes there are; all of them have to be encoded again.
func (c *Cluster) Resize(rows int) {
	c.rows = rows
	room := (rows + blockRows - 1) / blockRows * blockRows
	if len(c.q) < room {
		c.encoded = make([]float32, room*c.network.width)
		c.sums = make([]float32, room/blockRows*c.network.width)
		c.tops = make([]float32, room/blockRows*c.network.width)
		c.changed = make([]bool, room/blockRows)
		c.own = make([]float32, room*c.network.own.out)
		c.q = make([]float32, room)
		c.dirty = make([]int32, 0, room)
	}
	c.dirty = c.dirty[:0]
}

// Pooled is the mean and the maximum of all encodings, as the last Score saw them.
func (c *Cluster) Pooled() []float32 {
	return c.pooled[:2*c.network.width]
}

// Mark says that a row has to be encoded again. Each row at most once per Score.
func (c *Cluster) Mark(row int) {
	c.dirty = append(c.dirty, int32(row))
	c.changed[row/blockRows] = true
}

// Score encodes the marked rows, pools all of them, and gives the Q values of all rows for which
// wanted is set; the others are undefined. The result is valid until the next call.
func (c *Cluster) Score(ask *Ask, nodes []Node, wanted []bool) []float32 {
	c.encode(ask, nodes)
	c.pool()
	c.head(wanted)
	return c.q[:c.rows]
}

func (c *Cluster) encode(ask *Ask, nodes []Node) {
	width, own := c.network.width, c.network.own.out
	for start := 0; start < len(c.dirty); start += blockRows {
		block := c.dirty[start:min(start+blockRows, len(c.dirty))]
		for i, row := range block {
			ask.Fill(c.features[i*Features:], &nodes[row])
		}
		rows := (len(block) + rowGroup - 1) / rowGroup * rowGroup
		x := c.features
		for i := range c.network.encoder {
			y := c.hidden[i%2]
			c.network.encoder[i].apply(y, x, rows, true)
			x = y
		}
		z := c.hidden[len(c.network.encoder)%2]
		c.network.own.apply(z, x, rows, false)
		for i, row := range block {
			copy(c.encoded[int(row)*width:(int(row)+1)*width], x[i*width:])
			copy(c.own[int(row)*own:(int(row)+1)*own], z[i*own:])
		}
	}
	c.dirty = c.dirty[:0]
}

// pool sums blocks in single and the whole in double precision: thousands of nodes must not cost
// the fourth digit. Blocks in which nothing changed keep their sums. Encodings are never negative,
// so zero is neutral for the maximum.
func (c *Cluster) pool() {
	width := c.network.width
	mean, most := c.pooled[:width], c.pooled[width:2*width]
	var total [mostWidth]float64
	clear(most)
	for block := 0; block*blockRows < c.rows; block++ {
		sums, tops := c.sums[block*width:(block+1)*width], c.tops[block*width:(block+1)*width]
		if c.changed[block] {
			c.poolBlock(block, sums, tops)
			c.changed[block] = false
		}
		for j, sum := range sums {
			total[j] += float64(sum)
			most[j] = max(most[j], tops[j])
		}
	}
	for j := range mean {
		mean[j] = float32(total[j] / float64(max(c.rows, 1)))
	}
}

func (c *Cluster) poolBlock(block int, sums, tops []float32) {
	width, start := c.network.width, block*blockRows
	clear(sums)
	clear(tops)
	for column := 0; column < width; column += lane {
		rows := min(blockRows, c.rows-start)
		sumMax(sums[column:], tops[column:], c.encoded[start*width+column:], rows, width)
	}
}

func (c *Cluster) head(wanted []bool) {
	n := c.network
	n.shared.apply(c.shared, c.pooled, rowGroup, false)
	shared := c.shared[:n.own.out]
	if len(n.rest) == 0 { // the head is one layer: its first column is Q
		for row := range c.rows {
			c.q[row] = c.own[row*n.own.out] + shared[0]
		}
		return
	}
	if len(n.rest) == 1 {
		for row := range c.rows {
			if wanted[row] {
				c.q[row] = n.rest[0].bias[0] + reluDot(c.own[row*n.own.out:(row+1)*n.own.out], shared, n.final)
			}
		}
		return
	}
	c.deepHead(shared)
}

// deepHead is for heads of three and more layers, which ship with no policy: plain and slower.
func (c *Cluster) deepHead(shared []float32) {
	n := c.network
	for start := 0; start < c.rows; start += blockRows {
		rows := min(blockRows, c.rows-start)
		x := c.hidden[0]
		for i := range rows {
			for j := range n.own.out {
				x[i*n.own.out+j] = max(c.own[(start+i)*n.own.out+j]+shared[j], 0)
			}
		}
		whole := (rows + rowGroup - 1) / rowGroup * rowGroup
		for i := range n.rest {
			y := c.hidden[(i+1)%2]
			n.rest[i].apply(y, x, whole, i < len(n.rest)-1)
			x = y
		}
		for i := range rows {
			c.q[start+i] = x[i*n.rest[len(n.rest)-1].out]
		}
	}
}

// Choice is what follows from Q values: the best candidates, and scores of 0 to 100.
type Choice struct {
	Low, Top float32
	Usable   bool // there is a candidate, and every candidate's Q is a number
}

// tie: Q values this close are equal.
const tie = 1e-6

// Choose looks at the candidates' Q values.
func Choose(q []float32, candidate []bool) Choice {
	c := Choice{Low: math.MaxFloat32, Top: -math.MaxFloat32}
	for row, value := range q {
		if !candidate[row] {
			continue
		}
		if !(value >= -math.MaxFloat32 && value <= math.MaxFloat32) {
			return Choice{}
		}
		c.Usable = true
		c.Low = min(c.Low, value)
		c.Top = max(c.Top, value)
	}
	return c
}

// IsBest says whether a Q value is the best or equal to it.
func (c Choice) IsBest(q float32) bool {
	return q >= c.Top-tie
}

// Score is 100 for the best and its equals and below that for all others: rounding a near miss up
// would make the scheduler toss a coin between the two.
func (c Choice) Score(q float32) int64 {
	if c.IsBest(q) {
		return 100
	}
	return min(int64(math.Floor(float64((q-c.Low)/(c.Top-c.Low)*100))), 99)
}

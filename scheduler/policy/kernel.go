// SPDX-License-Identifier: Apache-2.0

package policy

// The inner loops, in plain Go: what machines without AVX2 run, and what the tests hold the
// vector forms against.

// plainDense is y = max(x w + b, least) for groups of rowGroup rows and one lane of columns.
func plainDense(y, x, w, b []float32, groups, in, xStride, yStride, wStride int, least float32) {
	for row := range groups * rowGroup {
		var sum [lane]float32
		copy(sum[:], b[:lane])
		for k, value := range x[row*xStride : row*xStride+in] {
			weights := w[k*wStride : k*wStride+lane]
			for j := range sum {
				sum[j] += value * weights[j]
			}
		}
		for j := range sum {
			y[row*yStride+j] = max(sum[j], least)
		}
	}
}

// plainSumMax adds rows of one lane to sums and raises tops to them.
func plainSumMax(sums, tops, x []float32, rows, stride int) {
	for row := range rows {
		for j, value := range x[row*stride : row*stride+lane] {
			sums[j] += value
			tops[j] = max(tops[j], value)
		}
	}
}

// plainReluDot is the sum of max(a + b, 0) w.
func plainReluDot(a, b, w []float32) float32 {
	var sum float32
	for j, value := range a {
		sum += max(value+b[j], 0) * w[j]
	}
	return sum
}

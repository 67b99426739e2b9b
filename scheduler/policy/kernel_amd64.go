// SPDX-License-Identifier: Apache-2.0

package policy

import "golang.org/x/sys/cpu"

// vectors: eight numbers at once where the processor can, one at a time elsewhere.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasFMA

//go:noescape
func denseAVX2(y, x, w, b *float32, groups, in, xStride, yStride, wStride int, least float32)

//go:noescape
func sumMaxAVX2(sums, tops, x *float32, rows, stride int)

//go:noescape
func reluDotAVX2(a, b, w *float32, n int) float32

func dense(y, x, w, b []float32, groups, in, xStride, yStride, wStride int, least float32) {
	if !vectors {
		plainDense(y, x, w, b, groups, in, xStride, yStride, wStride, least)
		return
	}
	if groups == 0 {
		return
	}
	// The kernel checks nothing: look at the last element of each before it runs.
	last := groups*rowGroup - 1
	_, _, _, _ = y[last*yStride+lane-1], x[last*xStride+in-1], w[(in-1)*wStride+lane-1], b[lane-1]
	denseAVX2(&y[0], &x[0], &w[0], &b[0], groups, in, 4*xStride, 4*yStride, 4*wStride, least)
}

func sumMax(sums, tops, x []float32, rows, stride int) {
	if !vectors {
		plainSumMax(sums, tops, x, rows, stride)
		return
	}
	if rows == 0 {
		return
	}
	_, _, _ = sums[lane-1], tops[lane-1], x[(rows-1)*stride+lane-1]
	sumMaxAVX2(&sums[0], &tops[0], &x[0], rows, 4*stride)
}

func reluDot(a, b, w []float32) float32 {
	if !vectors {
		return plainReluDot(a, b, w)
	}
	_, _ = b[len(a)-1], w[len(a)-1]
	return reluDotAVX2(&a[0], &b[0], &w[0], len(a))
}

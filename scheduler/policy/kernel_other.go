// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package policy

func dense(y, x, w, b []float32, groups, in, xStride, yStride, wStride int, least float32) {
	plainDense(y, x, w, b, groups, in, xStride, yStride, wStride, least)
}

func sumMax(sums, tops, x []float32, rows, stride int) {
	plainSumMax(sums, tops, x, rows, stride)
}

func reluDot(a, b, w []float32) float32 {
	return plainReluDot(a, b, w)
}

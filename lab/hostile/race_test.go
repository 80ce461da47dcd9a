//go:build race

package hostile

const (
	raced      = true
	usualLives = 5 // each takes many times as long; make worlds has all of them
)

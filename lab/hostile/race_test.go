//go:build race

package hostile

const (
	raced      = true
	usualLives = 20 // each takes several times as long
)

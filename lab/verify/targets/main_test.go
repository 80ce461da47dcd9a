package targets

import (
	"testing"

	"github.com/slicefeed/slicefeed/lab/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }

package plan

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrintsEachWarningOnce(t *testing.T) {
	var out bytes.Buffer
	notices := NewNotices(&out)
	log := notices.Logger()
	failed := errors.New("no set")
	if got := notices.WithLastNotice(failed); !errors.Is(got, failed) || got.Error() != "no set" {
		t.Errorf("before any notice: got %v", got)
	}
	blue := log.With("source", "blue")
	log.Info("starting")
	for range 60 {
		blue.With("error", errors.New("dial tcp 192.0.2.1:9443: connect: connection refused"), "again_in", "1s").Warn("stream ended")
	}
	log.Error("file cannot be used", "error", errors.New("no \x1b[31mPEM\nblock"))
	blue.Warn("stream ended", "error", errors.New("connection refused"))

	want := `  waiting: msg="stream ended" source=blue error="dial tcp 192.0.2.1:9443: connect: connection refused"
  waiting: msg="file cannot be used" error="no \x1b[31mPEM\nblock"
  waiting: msg="stream ended" source=blue error="connection refused"
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	got := notices.WithLastNotice(failed)
	if want := `no set; last warning: msg="stream ended" source=blue error="connection refused"`; !errors.Is(got, failed) ||
		got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if notices.WithLastNotice(nil) != nil {
		t.Error("no error, but got one")
	}
}

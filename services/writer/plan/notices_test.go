package plan

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNoticeHandlerPrintsEachWarningOnce(t *testing.T) {
	var out bytes.Buffer
	notices := NewNoticeHandler(&out)
	log := slog.New(notices)
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

	want := `  waiting: source blue: stream ended: dial tcp 192.0.2.1:9443: connect: connection refused
  waiting: file cannot be used: no  [31mPEM block
  waiting: source blue: stream ended: connection refused
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	got := notices.WithLastNotice(failed)
	if want := "no set; last warning: source blue: stream ended: connection refused"; !errors.Is(got, failed) || got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if notices.WithLastNotice(nil) != nil {
		t.Error("no error, but got one")
	}
}

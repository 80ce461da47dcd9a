package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitsLinesAboutOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 100)
		log := LogSettings{}.NewLogger(writerFunc(func(p []byte) (int, error) { lines <- string(p); return len(p), nil }))
		hostile, honest := log.With("source", "hostile"), log.With("source", "honest")
		for i := range 1000 {
			hostile.Info("probe status changed", "service", "web/shop", "address", fmt.Sprintf("10.0.0.%d", i))
		}
		hostile.Info("probe status changed", "service", "web/cart", "address", "10.0.0.1")
		honest.Info("probe status changed", "service", "web/shop", "address", "10.1.0.1")
		if n := len(lines); n != maxLines+2 {
			t.Errorf("%d lines, want %d of one Service of a source, and those of others", n, maxLines)
		}
		for len(lines) > 0 {
			<-lines
		}
		time.Sleep(window)
		synctest.Wait()
		want := `"level":"INFO","msg":"lines left out","source":"hostile","service":"web/shop","of":"probe status changed","count":980}`
		if got := <-lines; !strings.HasSuffix(got, want+"\n") || len(lines) > 0 {
			t.Errorf("got %s and %d more\nwant one line with %s", got, len(lines), want)
		}
		hostile.Info("probe status changed", "service", "web/shop")
		time.Sleep(window)
		synctest.Wait()
		if n := len(lines); n != 1 {
			t.Errorf("%d lines in the next window, want 1", n)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestTimesAndDurationsAreReadable(t *testing.T) {
	var out bytes.Buffer
	at := time.Date(2026, 11, 28, 14, 8, 41, 123456789, time.FixedZone("", 3600))
	LogSettings{}.NewLogger(&out).Info("a", "at", at, "wait", 1500*time.Millisecond)
	got := out.String()
	if !strings.HasSuffix(got, `"at":"2026-11-28T13:08:41.123Z","wait":"1.5s"}`+"\n") ||
		len(got) != len(`{"time":"2026-11-28T13:08:41.123Z","level":"INFO","msg":"a","at":"2026-11-28T13:08:41.123Z","wait":"1.5s"}`)+1 {
		t.Errorf("got %s", got)
	}
}

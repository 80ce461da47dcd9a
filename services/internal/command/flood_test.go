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
		var out bytes.Buffer
		log := LogSettings{}.NewLogger(&out)
		hostile, honest := log.With("source", "hostile"), log.With("source", "honest")
		for i := range 1000 {
			hostile.Info("probe status changed", "service", "web/shop", "address", fmt.Sprintf("10.0.0.%d", i))
		}
		hostile.Info("probe status changed", "service", "web/cart", "address", "10.0.0.1")
		honest.Info("probe status changed", "service", "web/shop", "address", "10.1.0.1")
		if n := strings.Count(out.String(), "\n"); n != maxLines+2 {
			t.Errorf("%d lines, want %d of one Service of a source, and those of others", n, maxLines)
		}
		out.Reset()
		time.Sleep(window)
		synctest.Wait()
		want := `"level":"INFO","msg":"lines left out","source":"hostile","service":"web/shop","of":"probe status changed","count":980}`
		if got := out.String(); !strings.HasSuffix(got, want+"\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("got %s\nwant one line with %s", got, want)
		}
		out.Reset()
		hostile.Info("probe status changed", "service", "web/shop")
		time.Sleep(window)
		synctest.Wait()
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("%d lines in the next window, want 1", n)
		}
	})
}

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

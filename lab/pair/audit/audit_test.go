package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func line(id, stage, user, verb string, code int) string {
	return fmt.Sprintf(
		`{"auditID":%q,"stage":%q,"verb":%q,"user":{"username":%q},"sourceIPs":["10.0.0.21","10.0.0.12"],"objectRef":{"namespace":"web","name":"shop-1"},`+
			`"responseStatus":{"code":%d},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000006Z"}`+"\n",
		id,
		stage,
		verb,
		user,
		code,
	)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCountsAnsweredWritesOfOneUser(t *testing.T) {
	l := Log{Path: filepath.Join(t.TempDir(), "audit.log")}
	if got, err := l.Writes(t.Context(), ""); err != nil || got != nil {
		t.Fatalf("before the server has written anything: %v, %v", got, err)
	}
	write(t, l.Path, line("1", "RequestReceived", "us", "create", 0)+line("1", "ResponseComplete", "us", "create", 201)+
		line("2", "RequestReceived", "other", "update", 0)+ // never answered, and none of ours
		line("3", "RequestReceived", "us", "update", 0)+line("3", "ResponseComplete", "us", "update", 409)+
		`{"auditID":"4","half a li`)
	got, err := l.Writes(t.Context(), "us")
	want := []Write{
		{User: "us", From: "10.0.0.21", Verb: "create", Name: "web/shop-1", Code: 201},
		{User: "us", From: "10.0.0.21", Verb: "update", Name: "web/shop-1", Code: 409},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Write{}, "At")); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestWaitsForWritesThatAreUnderWay(t *testing.T) {
	l := Log{Path: filepath.Join(t.TempDir(), "audit.log")}
	write(t, l.Path, line("1", "RequestReceived", "us", "update", 0))
	ended, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, err := l.Writes(ended, "us"); err == nil {
		t.Errorf("got %v without an answer", got)
	}
	done := make(chan []Write)
	go func() {
		got, _ := l.Writes(t.Context(), "us")
		done <- got
	}()
	write(t, l.Path, line("1", "ResponseComplete", "us", "update", 200))
	if got := <-done; len(got) != 1 {
		t.Errorf("got %v, want one write", got)
	}
}

func TestDoesNotWaitForRequestsThatArrivedBeforeTheServerWasKilled(t *testing.T) {
	killed := time.Date(2026, 1, 2, 3, 4, 5, 2000, time.UTC)
	l := Log{Path: filepath.Join(t.TempDir(), "audit.log"), ServerChanged: func() time.Time { return killed }}
	write(t, l.Path, line("1", "RequestReceived", "us", "update", 0))
	ended, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := l.Writes(ended, "us"); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v, want no write", got, err)
	}
}

package logging

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

func TestCapturesKlogAndGRPC(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	CaptureGlobalLoggers(Settings{}.NewLogger(&out))
	t.Cleanup(func() { slog.SetDefault(before); klog.ClearLogger() })

	slog.Info("component")
	klog.ErrorS(nil, "library")
	klog.Flush()
	grpclog.Errorln("library", 2)
	grpclog.Warning("at Debug")
	grpclog.Info("at Debug")

	type line struct{ Level, Msg, Library, Text string }
	var got []line
	for d := json.NewDecoder(&out); d.More(); {
		var l line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []line{
		{"INFO", "component", "", ""},
		{"ERROR", "library", "client-go", ""},
		{"ERROR", "grpc", "grpc", "library 2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

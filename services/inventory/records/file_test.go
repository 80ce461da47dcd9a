package records

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// must ends the test if its setup fails.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// replaceFile replaces a file atomically.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, path+".new", text)
	must(t, os.Rename(path+".new", path))
}

func TestFileBadInput(t *testing.T) {
	var path string
	withReplacement := func(replace func(t *testing.T)) func(*testing.T, *testPipeline) error {
		return func(t *testing.T, f *testPipeline) error {
			must(t, os.Remove(path))
			replace(t)
			err := f.verify(t.Context())
			must(t, os.RemoveAll(path))
			return err
		}
	}
	rows := append([]badInput{
		{"the file is not there", "", degradedSet, "no such file or directory"},
		{"a directory is in its place", "", degradedSet, "not a regular file"},
		{"a pipe without a writer is in its place", "", degradedSet, "not a regular file"},
		{"it is being written in place", "", degradedSet, "empty; want"},
	}, badTexts...)
	runBadInput(t, rows, func(t *testing.T) Reader {
		path = filepath.Join(t.TempDir(), "nodes.json")
		return NewFileReader(path)
	}, func(t *testing.T, _, text string) { replaceFile(t, path, text) }, map[string]func(*testing.T, *testPipeline) error{
		"the file is not there":                   withReplacement(func(*testing.T) {}),
		"a directory is in its place":             withReplacement(func(t *testing.T) { must(t, os.Mkdir(path, 0o700)) }),
		"a pipe without a writer is in its place": withReplacement(func(t *testing.T) { must(t, syscall.Mkfifo(path, 0o600)) }),
		"it is being written in place": func(t *testing.T, f *testPipeline) error {
			out, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			defer out.Close()
			for _, piece := range []string{validJSON[:1], validJSON[1:50], validJSON[50 : len(validJSON)-3]} {
				if err := f.verify(t.Context()); err == nil {
					t.Errorf("read before %q", piece)
				}
				_, err := out.WriteString(piece)
				must(t, err)
			}
			must(t, os.Truncate(path, 0))
			return f.verify(t.Context())
		},
	})
	t.Run("its directory cannot be watched", func(t *testing.T) {
		f := newTestPipeline(NewFileReader(filepath.Join(t.TempDir(), "later", "nodes.json")))
		defer startSource(t, f.source)()
		f.verify(t.Context())
		if got := f.summary(); got != "unsynced: " {
			t.Errorf("before there is a directory: %s", got)
		}
		path := f.source.cfg.Reader.(*fileReader).path
		must(t, os.Mkdir(filepath.Dir(path), 0o700))
		writeFile(t, path, validJSON)
		if f.verify(t.Context()); f.summary() != syncedSet {
			t.Errorf("got %s", f.summary())
		}
	})
}

func TestFileWatchReportsChanges(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after func(t *testing.T, path string)
	}{
		{"an atomic replacement", func(t *testing.T, path string) { writeFile(t, path, validJSON) }, func(t *testing.T, path string) { replaceFile(t, path, arrayJSON(recordA)) }},
		{"a write in place", func(t *testing.T, path string) { writeFile(t, path, validJSON) }, func(t *testing.T, path string) { writeFile(t, path, arrayJSON(recordA)) }},
		{"a new file", func(*testing.T, string) {}, func(t *testing.T, path string) { writeFile(t, path, arrayJSON(recordA)) }},
		{"a file that is removed and written again", func(t *testing.T, path string) { writeFile(t, path, validJSON) }, func(t *testing.T, path string) {
			must(t, os.Remove(path))
			writeFile(t, path, arrayJSON(recordA))
		}},
		{"the swap of a ConfigMap", func(t *testing.T, path string) {
			mountConfigMap(t, filepath.Dir(path), "1", validJSON)
			must(t, os.Symlink(filepath.Join("..data", "nodes.json"), path))
		}, func(t *testing.T, path string) { mountConfigMap(t, filepath.Dir(path), "2", arrayJSON(recordA)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "nodes.json")
			tc.before(t, path)
			f := newTestPipeline(NewFileReader(path))
			started := make(chan struct{})
			f.source.cfg.Reader = signalingReader{f.source.cfg.Reader.(*fileReader), started}
			defer startSource(t, f.source)()
			<-started // otherwise the first read might find the change
			f.verify(t.Context())
			tc.after(t, path)
			// A read after a change is not a verification, so it does not affect membership.
			for f.summary() != "synced: a ready 10.0.0.11" && f.summary() != "unsynced: a ready 10.0.0.11" {
				select {
				case <-f.source.Changed():
					f.roster.Apply(time.Now(), roster.Input{Source: f.source.Take()})
				case <-time.After(5 * time.Second):
					t.Fatalf("timed out with %s", f.summary())
				}
			}
		})
	}
}

// signalingReader is a file reader that closes started when its watch has started, where the file
// reader calls changed.
type signalingReader struct {
	*fileReader

	started chan<- struct{}
}

func (r signalingReader) Watch(ctx context.Context, changed func()) error {
	first := true
	return r.fileReader.Watch(ctx, func() {
		if !first {
			changed()
			return
		}
		first = false
		close(r.started)
	})
}

// mountConfigMap does what the kubelet does when a ConfigMap changes.
func mountConfigMap(t *testing.T, dir, version, text string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(dir, "..v"+version), 0o700))
	writeFile(t, filepath.Join(dir, "..v"+version, "nodes.json"), text)
	must(t, os.Symlink("..v"+version, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func TestFileWatchIgnoresOtherFilesAndEndsWithDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "nodes.json")
	calls, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- NewFileReader(path).(*fileReader).Watch(t.Context(), func() { calls <- struct{}{} }) }()
	<-calls // the watch has started
	for range 10 {
		writeFile(t, filepath.Join(dir, "other.json"), validJSON)
	}
	writeFile(t, path, validJSON)
	<-calls
	must(t, os.Rename(dir, dir+".old"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "directory was removed") {
		t.Errorf("got %v", err)
	}
	if n := len(calls); n > 2 { // creation and writing of nodes.json
		t.Errorf("%d more calls than changes", n)
	}
}

func TestFileReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.json")
	writeFile(t, path, "")
	must(t, os.Truncate(path, 1<<40)) // sparse
	data, err := NewFileReader(path).Read(t.Context())
	if err != nil || len(data) != MaxBytes+1 {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
}

package records

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// must fails the test on an error of its scaffolding.
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

// replace puts a new file in the place of one, as everyone should.
func replace(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, path+".new", text)
	must(t, os.Rename(path+".new", path))
}

func TestBadInputOfAFile(t *testing.T) {
	var path string
	inPlaceOfIt := func(put func(t *testing.T)) func(*testing.T, *feed) error {
		return func(t *testing.T, f *feed) error {
			must(t, os.Remove(path))
			put(t)
			err := f.look(t.Context())
			must(t, os.RemoveAll(path))
			return err
		}
	}
	rows := append([]badInput{
		{"the file is not there", "", stays, "no such file or directory"},
		{"a directory is in its place", "", stays, "it is no regular file"},
		{"a pipe that nobody writes to is in its place", "", stays, "it is no regular file"},
		{"it is being written in place", "", stays, "it is empty"},
	}, badTexts...)
	try(t, rows, func(t *testing.T) Reader {
		path = filepath.Join(t.TempDir(), "nodes.json")
		return File(path)
	}, func(t *testing.T, _, text string) { replace(t, path, text) }, map[string]func(*testing.T, *feed) error{
		"the file is not there":                        inPlaceOfIt(func(*testing.T) {}),
		"a directory is in its place":                  inPlaceOfIt(func(t *testing.T) { must(t, os.Mkdir(path, 0o700)) }),
		"a pipe that nobody writes to is in its place": inPlaceOfIt(func(t *testing.T) { must(t, syscall.Mkfifo(path, 0o600)) }),
		"it is being written in place": func(t *testing.T, f *feed) error {
			out, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			defer out.Close()
			for _, piece := range []string{good[:1], good[1:50], good[50 : len(good)-3]} {
				if err := f.look(t.Context()); err == nil {
					t.Errorf("read before %q", piece)
				}
				_, err := out.WriteString(piece)
				must(t, err)
			}
			must(t, os.Truncate(path, 0))
			return f.look(t.Context())
		},
	})
	t.Run("its directory cannot be watched", func(t *testing.T) {
		f := newFeed(File(filepath.Join(t.TempDir(), "later", "nodes.json")))
		defer run(t, f.source)()
		f.look(t.Context())
		if got := f.says(); got != "unsynced: " {
			t.Errorf("before there is a directory: %s", got)
		}
		path := f.source.reader.(*file).path
		must(t, os.Mkdir(filepath.Dir(path), 0o700))
		writeFile(t, path, good)
		if f.look(t.Context()); f.says() != saysGood {
			t.Errorf("got %s", f.says())
		}
	})
	var titles []string
	for _, row := range append(rows, badInput{title: "its directory cannot be watched"}) {
		titles = append(titles, row.title)
	}
	documented(t, "file", titles)
}

func TestTheWatchOfAFileNotices(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after func(t *testing.T, path string)
	}{
		{"an atomic replacement", func(t *testing.T, path string) { writeFile(t, path, good) }, func(t *testing.T, path string) { replace(t, path, array(a)) }},
		{"a write in place", func(t *testing.T, path string) { writeFile(t, path, good) }, func(t *testing.T, path string) { writeFile(t, path, array(a)) }},
		{"a file that comes", func(*testing.T, string) {}, func(t *testing.T, path string) { writeFile(t, path, array(a)) }},
		{"a file that goes and comes back", func(t *testing.T, path string) { writeFile(t, path, good) }, func(t *testing.T, path string) {
			must(t, os.Remove(path))
			writeFile(t, path, array(a))
		}},
		{"the swap of a ConfigMap", func(t *testing.T, path string) {
			mount(t, filepath.Dir(path), "1", good)
			must(t, os.Symlink(filepath.Join("..data", "nodes.json"), path))
		}, func(t *testing.T, path string) { mount(t, filepath.Dir(path), "2", array(a)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "nodes.json")
			tc.before(t, path)
			f := newFeed(File(path))
			up := make(chan struct{})
			f.source.reader = upTeller{f.source.reader.(*file), up}
			defer run(t, f.source)()
			<-up // without it the first read alone might find the change
			f.look(t.Context())
			tc.after(t, path)
			// A change makes no look: membership stays what the look made of it.
			for f.says() != "synced: a ready 10.0.0.11" && f.says() != "unsynced: a ready 10.0.0.11" {
				select {
				case <-f.source.Changed():
					f.roster.Hear(time.Now(), f.source.Take())
				case <-time.After(5 * time.Second):
					t.Fatalf("nothing was told: %s", f.says())
				}
			}
		})
	}
}

// upTeller is a file that tells when its watch is up and has provoked its first read.
type upTeller struct {
	*file

	up chan<- struct{}
}

func (u upTeller) Watch(ctx context.Context, changed func()) error {
	first := true
	return u.file.Watch(ctx, func() {
		if !first {
			changed()
			return
		}
		first = false
		close(u.up)
	})
}

// mount does what a kubelet does when a ConfigMap changes.
func mount(t *testing.T, dir, version, text string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(dir, "..v"+version), 0o700))
	writeFile(t, filepath.Join(dir, "..v"+version, "nodes.json"), text)
	must(t, os.Symlink("..v"+version, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func TestTheWatchOfAFileHeedsNoOtherFileAndEndsWithItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "nodes.json")
	calls, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- File(path).(*file).Watch(t.Context(), func() { calls <- struct{}{} }) }()
	<-calls // it is up
	for range 10 {
		writeFile(t, filepath.Join(dir, "other.json"), good)
	}
	writeFile(t, path, good)
	<-calls
	must(t, os.Rename(dir, dir+".old"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the directory has gone") {
		t.Errorf("got %v", err)
	}
	if n := len(calls); n > 2 { // creation and writing of nodes.json
		t.Errorf("%d calls more than there were changes", n)
	}
}

func TestAFileIsReadNoFurtherThanItsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.json")
	writeFile(t, path, "")
	must(t, os.Truncate(path, 1<<40)) // sparse
	data, err := File(path).Read(t.Context())
	if err != nil || len(data) != MaxBytes+1 {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
}

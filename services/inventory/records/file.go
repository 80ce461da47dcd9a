package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// kubeletDataLink is the symbolic link that the kubelet replaces when a mounted ConfigMap or Secret
// changes. The file itself is a link through it and never changes.
const kubeletDataLink = "..data"

// NewFileReader returns a Reader of a file. It watches the directory rather than the file, which may
// not exist yet, and which is a different one after each replacement.
func NewFileReader(path string) Reader { return &fileReader{path: path} }

type fileReader struct{ path string }

// Text is a Reader of the text itself, like a file that never changes.
type Text string

// Read returns the text.
func (t Text) Read(context.Context) ([]byte, error) { return []byte(t), nil }

// Read returns the content of the file.
func (f *fileReader) Read(context.Context) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe blocks until there is a writer.
	in, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a regular file", f.path)
	}
	return io.ReadAll(io.LimitReader(in, MaxBytes+1))
}

// Watch calls changed when the file may have changed.
func (f *fileReader) Watch(ctx context.Context, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("create file watch: %w", err)
	}
	defer func() { _ = w.Close() }()
	dir, base := filepath.Split(filepath.Clean(f.path))
	dir = filepath.Clean(dir)
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch directory of %s: %w", f.path, err)
	}
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			switch name := filepath.Base(e.Name); {
			case filepath.Clean(e.Name) == dir && e.Op.Has(fsnotify.Remove|fsnotify.Rename):
				return fmt.Errorf("watch %s: directory was removed", dir)
			case name == base || name == kubeletDataLink:
				changed()
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch %s: %w", dir, err)
			}
			changed()
		}
	}
}

// Package tinydisk makes file systems of a few pages that can be filled to the last byte. It
// promises that other programs of the lab reach the files by their paths, and that nothing is
// left behind when the program ends; it refuses to work outside of the lab's namespace.
package tinydisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slicefeed/slicefeed/lab/netns"
)

// Disk is a file system in memory, mounted nowhere: its paths lead through this program's open
// file. Close it in the end.
type Disk struct {
	root *os.File
}

// New makes a disk of so many bytes, in whole pages.
func New(size int) (*Disk, error) {
	if !netns.Inside() {
		return nil, errors.New("make a disk: the program is not in a namespace of its own")
	}
	var d Disk
	// Only who owns a mount namespace may mount; this one ends with the thread, and the disk,
	// which is in none, stays.
	err := netns.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		return d.mount(size)
	})
	if err != nil {
		return nil, fmt.Errorf("make a disk of %d bytes: %w", size, err)
	}
	return &d, nil
}

func (d *Disk) mount(size int) error {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open a tmpfs: %w", err)
	}
	defer unix.Close(fs) //nolint:errcheck // it is of no use any more
	for key, value := range map[string]string{"size": strconv.Itoa(size), "mode": "0700"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return fmt.Errorf("set %s of a tmpfs: %w", key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("create a tmpfs: %w", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	d.root = os.NewFile(uintptr(root), "tiny disk")
	return nil
}

// Dir is the disk's directory, for every program of this user.
func (d *Disk) Dir() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.root.Fd())
}

// Path is that of a file on the disk.
func (d *Disk) Path(name string) string { return filepath.Join(d.Dir(), name) }

const filler = "filler"

// Fill takes all the room that is left but so many pages. Free gives it back.
func (d *Disk) Fill(butPages int) error {
	if err := d.Free(); err != nil {
		return err
	}
	var is unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &is); err != nil {
		return fmt.Errorf("ask how much room there is: %w", err)
	}
	pages := int64(is.Bfree) - int64(butPages)
	if pages <= 0 {
		return nil
	}
	if err := os.WriteFile(d.Path(filler), make([]byte, pages*is.Bsize), 0o600); err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// Free makes room again.
func (d *Disk) Free() error {
	if err := os.Remove(d.Path(filler)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close gives the disk up; it is gone when nobody has a file of it open.
func (d *Disk) Close() error { return d.root.Close() }

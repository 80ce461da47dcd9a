package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	cniPlugins = "/usr/lib/cni" // where Debian has them
	pauseImage = "slicefeed.dev/pause:lab"
)

// programs are those that are built from their modules.
var programs = []string{"kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager"}

// Images are the archives that tools/node makes: the images of the product, and the one that holds a Pod.
func Images() (archives []string, err error) {
	root, err := pair.Root()
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(root, ".bin", "node", "*.tar"))
}

// Missing says why there can be no Node here; nil: there can.
func Missing() error {
	if os.Getuid() != 0 {
		return errors.New("only root can run containers")
	}
	for _, program := range []string{"containerd", "ctr", "runc", "nft", filepath.Join(cniPlugins, "ptp")} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s: apt-get install containerd runc containernetworking-plugins nftables", program)
		}
	}
	// Version 1 has a directory for each controller.
	groups, err := filepath.Glob("/sys/fs/cgroup/memory")
	if err != nil || len(groups) == 0 {
		groups = []string{"/sys/fs/cgroup"}
	}
	tried := filepath.Join(groups[0], "slicefeed-lab")
	if err := os.Mkdir(tried, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("no cgroup can be made: %w", err)
	}
	if err := os.Remove(tried); err != nil {
		return err
	}
	images, err := Images()
	if err == nil && len(images) == 0 {
		err = errors.New("there are no images in .bin/node: tools/node builds them, with a Docker engine")
	}
	return err
}

// Enter moves the program to where Nodes can run, see netns.EnterMachine. Before, it builds what they need.
func Enter(ctx context.Context, addrs ...netip.Addr) error {
	if !netns.Inside() { // inside there is no network
		if _, err := controlplane.Build(ctx, os.Stderr); err != nil {
			return err
		}
		if _, err := controlplane.BuildPrograms(ctx, os.Stderr, programs...); err != nil {
			return err
		}
	}
	if err := netns.EnterMachine(ctx, addrs...); err != nil {
		return err
	}
	for _, dir := range []string{"/run", "/var/log", "/var/lib/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return keepSettings()
}

// unmount ends all mounts below a directory, which could not be removed otherwise.
func unmount(dir string) error {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(string(raw), "\n")) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[1], dir+"/") {
			continue
		}
		if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", fields[1], err)
		}
	}
	return nil
}

// keepSettings has kubelets write the settings that they change into files instead: they are the whole machine's.
func keepSettings() error {
	for _, setting := range []string{"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops", "kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes"} {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(setting, ".", "/"))
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		copied := filepath.Join("/run", setting)
		if err := os.WriteFile(copied, raw, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(copied, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep %s as it is: %w", setting, err)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// worker is one node of the lab: a part of this machine that a cgroup holds. A node exporter would
// describe the whole machine three times; this answers with the same names for the part alone.
type worker struct {
	millicores int64
	memory     int64 // bytes
	cpu        string
	memoryPath string
	members    string
	bridge     string
	disk       string
	unified    bool
	quota      string
	period     string
	started    time.Time
	baseline   float64

	mutex  sync.Mutex
	stolen float64 // seconds of one core that were withheld, see steal
	looked time.Time
}

func meter(arguments []string) int {
	flags := flag.NewFlagSet("meter", flag.ExitOnError)
	listen := flags.String("listen", "", "address to answer on")
	millicores := flags.Int64("cpu-millicores", 1000, "what the worker has")
	memory := flags.Int64("memory-mib", 1024, "what the worker has")
	cgroup := flags.String("cgroup", "", "the worker's cgroup, /pilothouse-lab/worker-1")
	root := flags.String("cgroup-mount", "/sys/fs/cgroup", "where cgroups are mounted")
	bridge := flags.String("bridge", "", "the worker's bridge")
	disk := flags.String("disk", "/", "a path on the worker's disk")
	_ = flags.Parse(arguments)

	w := &worker{
		millicores: *millicores, memory: *memory * mebibyte,
		bridge: *bridge, disk: *disk, started: time.Now(),
	}
	if _, err := os.Stat(filepath.Join(*root, "cgroup.controllers")); err == nil {
		w.unified = true
		w.cpu = filepath.Join(*root, *cgroup, "cpu.stat")
		w.memoryPath = filepath.Join(*root, *cgroup, "memory")
		w.members = filepath.Join(*root, *cgroup)
		w.quota = filepath.Join(*root, *cgroup, "cpu.max")
	} else {
		w.cpu = filepath.Join(*root, "cpuacct", *cgroup, "cpuacct.usage")
		w.memoryPath = filepath.Join(*root, "memory", *cgroup, "memory")
		w.members = filepath.Join(*root, "pids", *cgroup)
		w.quota = filepath.Join(*root, "cpu", *cgroup, "cpu.cfs_quota_us")
		w.period = filepath.Join(*root, "cpu", *cgroup, "cpu.cfs_period_us")
	}
	w.looked = w.started
	w.baseline = w.used()
	if err := http.ListenAndServe(*listen, http.HandlerFunc(w.metrics)); err != nil {
		fmt.Fprintf(os.Stderr, "workload meter: listening on %s: %v\n", *listen, err)
	}
	return 1
}

func (w *worker) metrics(out http.ResponseWriter, _ *http.Request) {
	out.Header().Set("Content-Type", "text/plain; version=0.0.4")
	cores := float64(w.millicores) / 1000
	used := w.used() - w.baseline
	// A counter of one core, so that the average over "cpu" is the share of what the worker has.
	busy := used / cores
	stolen := w.steal()
	idle := max(time.Since(w.started).Seconds()-busy-stolen, 0)
	name := "node_cpu_seconds_total"
	fmt.Fprintf(out, "# HELP %s Seconds by mode, of the worker's share.\n# TYPE %s counter\n", name, name)
	fmt.Fprintf(out, "%s{cpu=\"0\",mode=\"idle\"} %g\n%s{cpu=\"0\",mode=\"user\"} %g\n", name, idle, name, busy)
	fmt.Fprintf(out, "%s{cpu=\"0\",mode=\"steal\"} %g\n", name, stolen)

	total, available := w.memoryOf()
	sample(out, "gauge", "node_memory_MemTotal_bytes", "Memory of the worker.", "", total)
	sample(out, "gauge", "node_memory_MemAvailable_bytes", "Memory that could still be used.", "", available)

	var disk syscall.Statfs_t
	if syscall.Statfs(w.disk, &disk) == nil {
		at := `{device="worker",fstype="ext4",mountpoint="/run"}`
		sample(out, "gauge", "node_filesystem_size_bytes", "Size of the worker's disk.", at, float64(disk.Blocks)*float64(disk.Bsize))
		sample(out, "gauge", "node_filesystem_free_bytes", "Free on the worker's disk.", at, float64(disk.Bfree)*float64(disk.Bsize))
	}
	// The bridge's transmitting side is what the pods receive, and the other way round.
	counters := filepath.Join("/sys/class/net", w.bridge, "statistics")
	sample(out, "counter", "node_network_receive_bytes_total", "Bytes received by the worker.", `{device="eth0"}`, number(filepath.Join(counters, "tx_bytes")))
	sample(out, "counter", "node_network_transmit_bytes_total", "Bytes sent by the worker.", `{device="eth0"}`, number(filepath.Join(counters, "rx_bytes")))
	sample(out, "gauge", "node_netstat_Tcp_CurrEstab", "Established connections in the worker's pods.", "", w.connections())
}

// used is the processor time of everything that ran in the worker's cgroup, in seconds.
func (w *worker) used() float64 {
	if !w.unified {
		return number(w.cpu) / 1e9
	}
	return field(w.cpu, "usage_usec") / 1e6
}

// steal is what a hypervisor would withhold: the part of its share that the worker's quota leaves out.
func (w *worker) steal() float64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	now := time.Now()
	cores := w.allowed()
	if share := float64(w.millicores) / 1000; cores >= 0 && cores < share {
		w.stolen += now.Sub(w.looked).Seconds() * (1 - cores/share)
	}
	w.looked = now
	return w.stolen
}

// allowed is the worker's quota in cores, negative where there is none.
func (w *worker) allowed() float64 {
	if !w.unified {
		quota, period := number(w.quota), number(w.period)
		if period <= 0 {
			return -1
		}
		return quota / period
	}
	content, _ := os.ReadFile(w.quota)
	var quota, period float64
	if n, _ := fmt.Sscan(string(content), &quota, &period); n != 2 || period <= 0 {
		return -1 // "max"
	}
	return quota / period
}

// memoryOf is what the worker has and what is left of it: inactive page cache can be taken back.
func (w *worker) memoryOf() (total, available float64) {
	total = float64(w.memory)
	if w.unified {
		return total, total - (number(w.memoryPath+".current") - field(w.memoryPath+".stat", "inactive_file"))
	}
	used := number(w.memoryPath+".usage_in_bytes") - field(w.memoryPath+".stat", "total_inactive_file")
	return total, total - used
}

// connections adds up the established connections of every network namespace of the worker's pods.
func (w *worker) connections() float64 {
	seen := map[string]bool{}
	total := 0.0
	_ = filepath.WalkDir(w.members, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil
		}
		members, _ := os.ReadFile(path)
		for _, pid := range strings.Fields(string(members)) {
			space, err := os.Readlink(filepath.Join("/proc", pid, "ns/net"))
			if err != nil || seen[space] {
				continue
			}
			seen[space] = true
			total += established(filepath.Join("/proc", pid, "net/snmp"))
		}
		return nil
	})
	return total
}

// established reads CurrEstab from the pair of Tcp lines: names first, then values.
func established(path string) float64 {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	var names []string
	for _, line := range strings.Split(string(content), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "CurrEstab" && i < len(words) {
				value, _ := strconv.ParseFloat(words[i], 64)
				return value
			}
		}
	}
	return 0
}

// number is the single number a file holds, 0 where there is none.
func number(path string) float64 {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	value, _ := strconv.ParseFloat(strings.TrimSpace(string(content)), 64)
	return value
}

// field is the value of one "name value" line.
func field(path, name string) float64 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, _ := strings.Cut(lines.Text(), " "); key == name {
			parsed, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return parsed
		}
	}
	return 0
}

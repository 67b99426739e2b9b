// SPDX-License-Identifier: Apache-2.0
// A uPlot chart that fills its box and follows the colors of the page.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock, plain } from "../format.ts";
import type { Columns } from "../series.ts";

/** One line of a chart. */
export interface Line {
  readonly name: string;
  /** Name of the color in the style sheet, such as "--safety". */
  readonly color: string;
  /** Drawn against the right axis. */
  readonly right?: boolean;
}

interface Props {
  readonly label: string;
  readonly columns: Columns;
  readonly lines: ReadonlyArray<Line>;
  /** The left axis never shows less than this range above zero. */
  readonly floor: number;
}

const AXIS = { size: 22, font: "11px system-ui, sans-serif" };

export function Chart({ label, columns, lines, floor }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(columns);
  latest.current = columns;

  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, lines, floor), latest.current, element);
    };
    const resize = new ResizeObserver(() => plot.current?.setSize(sizeOf(element)));
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    draw();
    resize.observe(element);
    scheme.addEventListener("change", draw);
    return () => {
      resize.disconnect();
      scheme.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [lines, floor]);

  useEffect(() => plot.current?.setData(columns), [columns]);

  return <div class="chart" ref={box} role="img" aria-label={label} />;
}

function sizeOf(element: HTMLElement): { width: number; height: number } {
  return { width: Math.max(50, element.clientWidth), height: Math.max(40, element.clientHeight) };
}

function options(element: HTMLElement, lines: ReadonlyArray<Line>, floor: number): uPlot.Options {
  const style = getComputedStyle(element);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const grid = { stroke: color("--line"), width: 1 };
  const ticks = { show: false };
  const stroke = color("--dim");
  const right = lines.some((line) => line.right === true);
  return {
    ...sizeOf(element),
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    padding: [6, right ? 0 : 26, 0, 0],
    scales: {
      x: { time: false },
      y: { range: (_plot, low, high) => padded(low, high, floor) },
      right: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.15)] },
    },
    axes: [
      { ...AXIS, stroke, grid, ticks, space: 70, values: (_plot, marks) => marks.map(clock) },
      { ...AXIS, size: 38, stroke, grid, ticks, space: 24, values: (_plot, marks) => marks.map(plain) },
      ...(right
        ? [
            {
              ...AXIS,
              size: 54,
              side: 1 as const,
              scale: "right",
              stroke,
              ticks,
              grid: { show: false },
              space: 24,
              values: (_plot: uPlot, marks: number[]) => marks.map((mark) => `${plain(mark)} W`),
            },
          ]
        : []),
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        scale: line.right === true ? "right" : "y",
        stroke: color(line.color),
        width: 1.5,
        points: { show: false },
      })),
    ],
  };
}

function padded(low: number | null, high: number | null, floor: number): [number, number] {
  const bottom = Math.min(0, low ?? 0);
  const top = Math.max(floor, high ?? 0);
  const room = (top - bottom) * 0.06;
  return [bottom < 0 ? bottom - room : 0, top + room];
}

// SPDX-License-Identifier: Apache-2.0
// Numbers and times as a person reads them.

const pad = (value: number): string => String(value).padStart(2, "0");

/** Cluster clock as hours, minutes and seconds: 5025 is 01:23:45. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  return `${pad(Math.floor(whole / 3600))}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}`;
}

/** A stretch of time in its largest useful unit: 90 is 1 min 30 s, 15 is 15 s. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${whole / 60} min`;
  const minutes = Math.floor(whole / 60) % 60;
  return minutes ? `${Math.floor(whole / 3600)} h ${minutes} min` : `${Math.floor(whole / 3600)} h`;
}

/** A score or probability with two digits; a dash where there is none. */
export function score(value: number | null): string {
  return value === null ? "–" : value.toFixed(2);
}

/** A risk per mille as a probability. */
export function risk(permille: number | null): string {
  return score(permille === null ? null : permille / 1000);
}

/** A share per mille in percent. */
export function percent(permille: number): string {
  return `${Math.round(permille / 10)} %`;
}

/** A reward with its sign, so that a loss is seen at once. */
export function signed(value: number): string {
  if (Math.abs(value) < 0.005) return "0.0";
  const text = Math.abs(value) >= 100 ? Math.abs(value).toFixed(0) : Math.abs(value).toFixed(1);
  return `${value > 0 ? "+" : "−"}${text}`;
}

/** A plain number, short: 0.78, 14, 1,240. */
export function plain(value: number | null): string {
  if (value === null) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}

/** Wall milliseconds of a step. */
export function millis(value: number | null): string {
  if (value === null) return "–";
  return value >= 100 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
}

/** A size in the unit that leaves one to three digits. */
export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  if (value < 1_000_000) return `${(value / 1000).toFixed(0)} kB`;
  return `${(value / 1_000_000).toFixed(1)} MB`;
}

/** Watts, in kilowatts from ten of them on. */
export function watts(value: number): string {
  return value < 10_000 ? `${value.toLocaleString("en-US")} W` : `${(value / 1000).toFixed(1)} kW`;
}

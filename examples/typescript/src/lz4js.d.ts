declare module "lz4js" {
  export function compress(plain: Uint8Array): Uint8Array;
  export function decompress(compressed: Uint8Array): Uint8Array;
}

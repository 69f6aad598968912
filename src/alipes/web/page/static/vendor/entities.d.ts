export const characterEntities: Record<string, string>;
